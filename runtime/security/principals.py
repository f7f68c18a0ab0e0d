"""Principals, their roles and namespaces (R48). Values only, no I/O."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from enum import IntEnum

from runtime.common.errors import InvalidInputError
from runtime.common.namespaces import ALL_NAMESPACES, DEFAULT_NAMESPACE, check_namespace

ADMIN_NAME = "admin"
"""The principal of the cluster's token, and of all clients without authentication. Its jobs name no submitter."""

CERTIFICATE_NAME_MAX = 256

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,126}\Z")


class Role(IntEnum):
    """Each role includes the rights of the lower ones."""

    VIEWER = 1
    SUBMITTER = 2
    OPERATOR = 3
    ADMIN = 4

    @property
    def text(self) -> str:
        """The role in lower case, as in options and claims."""
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Role:
        """The inverse of `text`. Raises InvalidInputError that lists the roles."""
        for role in cls:
            if role.text == text:
                return role
        message = f"{text[:40]!r} is not a role: there are {', '.join(role.text for role in cls)}"
        raise InvalidInputError(message)


@dataclass(frozen=True, slots=True)
class Principal:
    """A signed-in client; `via` names the way. It sees jobs of `namespace`, of all with ALL_NAMESPACES."""

    name: str
    role: Role
    namespace: str
    via: str = "token"

    @property
    def submitter(self) -> str:
        """The submitter in records of its jobs: "" for the admin, as in records of earlier releases."""
        return "" if self.name == ADMIN_NAME else self.name

    @property
    def is_of_all(self) -> bool:
        """True when it sees the jobs of every namespace."""
        return self.namespace == ALL_NAMESPACES

    def sees(self, namespace: str) -> bool:
        """True when it sees the jobs of that namespace."""
        return self.namespace in {ALL_NAMESPACES, namespace}

    def namespace_for(self, asked: str) -> str:
        """The namespace of a job that it submits: `asked`, or its own when `asked` is "". Raises InvalidInputError."""
        if asked:
            return check_namespace(asked)
        return DEFAULT_NAMESPACE if self.is_of_all else self.namespace


ADMIN = Principal(ADMIN_NAME, Role.ADMIN, ALL_NAMESPACES)
"""The principal of the cluster's token."""
ANYBODY = Principal(ADMIN_NAME, Role.ADMIN, ALL_NAMESPACES, via="none")
"""The principal of all clients when security.authentication is none."""


def is_principal_name(name: str) -> bool:
    """True when a principal can have that name."""
    return name.rstrip(".").lower() != ADMIN_NAME and _NAME.match(name) is not None


def check_principal_name(name: str) -> str:
    """Returns the name as it is. Raises InvalidInputError when no principal can have it."""
    if not is_principal_name(name):
        message = (
            f"{name[:40]!r} cannot be the name of a principal: expected up to 127 letters, digits and . _ @ -, "
            f"beginning with a letter or digit, and not {ADMIN_NAME!r}, in no case and with no dot behind it: that is "
            "the principal of the cluster's token"
        )
        raise InvalidInputError(message)
    return name


def check_certificate_name(name: str) -> str:
    """Returns the name as it is. Raises InvalidInputError when a certificate cannot have it."""
    if not 0 < len(name) <= CERTIFICATE_NAME_MAX or not name.isprintable() or name != name.strip():
        message = (
            f"{name[:40]!r} cannot be the name in a certificate: expected its common name, or its first other name if "
            f"it has none, of at most {CERTIFICATE_NAME_MAX} characters"
        )
        raise InvalidInputError(message)
    return name


def check_rights(role: Role, namespace: str) -> None:
    """Raises InvalidInputError for an admin of one namespace: it could give itself all others."""
    if namespace != ALL_NAMESPACES:
        check_namespace(namespace)
        if role is Role.ADMIN:
            message = f"an admin is one of all namespaces: name no namespace, or {ALL_NAMESPACES!r}"
            raise InvalidInputError(message)


def new_token() -> str:
    """A fresh secret of 256 bits."""
    return f"flt_{secrets.token_urlsafe(32)}"


def token_digest(token: str) -> str:
    """The digest that is stored in place of a token.

    One SHA-256 is enough: a token has 256 random bits and cannot be guessed, and a slow digest protects only guessable
    secrets. Each request computes this digest.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()

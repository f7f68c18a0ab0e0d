"""Who asks, and what he may do (R48): principals, their roles and namespaces. Values only, and no I/O."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from enum import IntEnum

from runtime.common.errors import InvalidInputError
from runtime.common.namespaces import ALL_NAMESPACES, DEFAULT_NAMESPACE, check_namespace

ADMIN_NAME = "admin"
"""Whoever shows the cluster's own token, or anybody where no token is asked for. Its jobs name no submitter."""

CERTIFICATE_NAME_MAX = 256

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,126}\Z")


class Role(IntEnum):
    """Each may do all that those below it may."""

    VIEWER = 1
    SUBMITTER = 2
    OPERATOR = 3
    ADMIN = 4

    @property
    def text(self) -> str:
        """As people write it."""
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Role:
        """Raises InvalidInputError with those that there are."""
        for role in cls:
            if role.text == text:
                return role
        message = f"{text[:40]!r} is not a role: there are {', '.join(role.text for role in cls)}"
        raise InvalidInputError(message)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who has signed in, by `via`. `namespace`: whose jobs it sees, ALL_NAMESPACES for those of all."""

    name: str
    role: Role
    namespace: str
    via: str = "token"

    @property
    def submitter(self) -> str:
        """What its jobs carry: nothing for the admin's, as those of earlier releases do."""
        return "" if self.name == ADMIN_NAME else self.name

    @property
    def is_of_all(self) -> bool:
        """Does it see the jobs of every namespace?"""
        return self.namespace == ALL_NAMESPACES

    def sees(self, namespace: str) -> bool:
        """May it know of what is there?"""
        return self.namespace in {ALL_NAMESPACES, namespace}

    def namespace_for(self, asked: str) -> str:
        """Where a job goes that it submits; `asked` "" leaves that to the principal."""
        if asked:
            return check_namespace(asked)
        return DEFAULT_NAMESPACE if self.is_of_all else self.namespace


ADMIN = Principal(ADMIN_NAME, Role.ADMIN, ALL_NAMESPACES)
"""Shows the cluster's token."""
ANYBODY = Principal(ADMIN_NAME, Role.ADMIN, ALL_NAMESPACES, via="none")
"""Where security.authentication is none."""


def is_principal_name(name: str) -> bool:
    """Can a principal have that name?"""
    return name.rstrip(".").lower() != ADMIN_NAME and _NAME.match(name) is not None


def check_principal_name(name: str) -> str:
    """Raises InvalidInputError."""
    if not is_principal_name(name):
        message = (
            f"{name[:40]!r} cannot be the name of a principal: expected up to 127 letters, digits and . _ @ -, "
            f"beginning with a letter or digit, and not {ADMIN_NAME!r}, in no case and with no dot behind it: he "
            "has the cluster's own token"
        )
        raise InvalidInputError(message)
    return name


def check_certificate_name(name: str) -> str:
    """Raises InvalidInputError."""
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
    """What is stored of a token instead of it.

    One SHA-256 is enough: a token has 256 random bits, so that nobody finds it by trying, which is all that a slow
    digest would make harder; and each request takes this digest.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()

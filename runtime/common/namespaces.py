"""Namespaces: each job belongs to one. A principal of one namespace sees no job of another one (R48)."""

from __future__ import annotations

import re

from runtime.common.errors import InvalidInputError

DEFAULT_NAMESPACE = "default"
"""The namespace of jobs that name none, and of jobs of earlier releases."""
ALL_NAMESPACES = "*"
UNKNOWN_NAMESPACE = "?"
"""The namespace of jobs whose record cannot be read: only principals of all namespaces see them."""
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")


def check_namespace(namespace: str) -> str:
    """Returns the name as it is. Raises InvalidInputError when it is not a namespace's."""
    if not _NAMESPACE.match(namespace):
        message = (
            f"{namespace[:40]!r} is not a namespace: expected up to 63 lower-case letters, digits, - and _, "
            "beginning with a letter or digit"
        )
        raise InvalidInputError(message)
    return namespace

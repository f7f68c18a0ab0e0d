"""Namespaces: to whom a job belongs. Who may see one of them sees no other (R48)."""

from __future__ import annotations

import re

from runtime.common.errors import InvalidInputError

DEFAULT_NAMESPACE = "default"
"""Of jobs that name none, and of those of earlier releases."""
ALL_NAMESPACES = "*"
UNKNOWN_NAMESPACE = "?"
"""Of jobs whose record cannot be read: only who sees all namespaces sees these."""
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")


def check_namespace(namespace: str) -> str:
    """Raises InvalidInputError."""
    if not _NAMESPACE.match(namespace):
        message = (
            f"{namespace[:40]!r} is not a namespace: expected up to 63 lower-case letters, digits, - and _, "
            "beginning with a letter or digit"
        )
        raise InvalidInputError(message)
    return namespace

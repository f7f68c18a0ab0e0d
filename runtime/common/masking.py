"""Which settings hold secrets, for every place that shows settings."""

from __future__ import annotations

import re

MASK = "******"

_SECRET = re.compile(
    r"password|passphrase|secret|token|api-?key|service-key|account\.?key|access[.-]?key|private[.-]?key|auth-params"
    r"|basic-auth|jaas\.config|http[.-]?headers",
    re.IGNORECASE,
)
"""Flink's words (GlobalConfiguration) and Spark's (spark.redaction.regex), which looks at values as well: Java options
carry passwords."""


_ANY_LOGIN = re.compile(r"://[^/@\s]*@")
_LOGIN = re.compile(r"://[^/@\s]*:[^/@\s]*@")
"""A URL with a password."""
SECRETS = f"{_SECRET.pattern}|{_LOGIN.pattern}"
"""The same for another reader of regular expressions, which ignores case: of names, and of values."""


def is_secret_key(key: str) -> bool:
    """True when the name of a setting says that it holds a secret."""
    return _SECRET.search(key) is not None


def without_login(url: str) -> str:
    """The URL without its user and password: for messages and logs."""
    return _ANY_LOGIN.sub(f"://{MASK}@", url)


def masked(key: str, value: str) -> str:
    """The value, unless it or its key looks like a secret."""
    return MASK if is_secret_key(key) or _SECRET.search(value) or _LOGIN.search(value) else value

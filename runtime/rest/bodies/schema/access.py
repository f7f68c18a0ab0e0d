"""Bodies of /principal and /tokens. Times are milliseconds since 1970, 0 is never."""

from __future__ import annotations

from typing_extensions import TypedDict


class SignedInPrincipal(TypedDict):
    """The caller, as the cluster knows it."""

    name: str
    role: str
    namespace: str
    via: str


class TokenLifetimes(TypedDict):
    """When a token was made, and when it ends."""

    created: int
    expires: int


StoredPrincipal = TypedDict(
    "StoredPrincipal",
    {
        "name": str,
        "role": str,
        "namespace": str,
        "is-revoked": bool,
        "tokens": list[TokenLifetimes],
        "certificate": str,
        "problem": str,
    },
)


class StoredPrincipals(TypedDict):
    """All principals, revoked ones too."""

    principals: list[StoredPrincipal]


class PrincipalWithToken(StoredPrincipal):
    """A principal and its new token, which no other answer holds."""

    token: str

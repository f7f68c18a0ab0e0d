"""JwtVerifier: from JSON Web Tokens of an identity provider to principals (R48).

Invariants: no claim is used before the signature is verified; a token's length is bounded before it is parsed; no error
message repeats content of a token, except shortened names of keys and algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jwt

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError, UnauthenticatedError, UnavailableError
from runtime.common.namespaces import ALL_NAMESPACES, DEFAULT_NAMESPACE
from runtime.security.jwt_keys import JwtKeys
from runtime.security.principals import Principal, Role, check_principal_name, check_rights, token_digest

JWT_LENGTH_MAX = 8 * 1024
VIA = "jwt"
_KID_LENGTH_MAX = 256
_KEPT_MAX = 1000
"""Verified tokens that are remembered until they expire, about 300 bytes each."""
_SHOWN_MAX = 40


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Accepted issuer and audiences, and the names of the claims. `roles`: roles by values of the role's claim.

    Without `roles` the values are roles themselves. `leeway`: seconds by which clocks may differ.
    """

    issuer: str
    audiences: tuple[str, ...]
    leeway: float
    name_claim: str
    role_claim: str
    namespace_claim: str
    roles: Mapping[str, Role]


class JwtKeySource(Protocol):
    """The source of the issuer's keys."""

    def keys(self) -> JwtKeys:
        """The present keys. Raises UnavailableError while none are known yet."""

    def look_again(self) -> bool:
        """Called when a token names an unknown key. True when the key may be known soon: the client may ask again."""


@dataclass(frozen=True, slots=True)
class _Verified:
    principal: Principal
    ends: float
    keys: JwtKeys


class JwtVerifier:
    """Finds the principal of a token. No I/O; for one event loop."""

    def __init__(self, settings: JwtSettings, source: JwtKeySource, clock: Clock) -> None:
        self._settings = settings
        self._source = source
        self._clock = clock
        self._kept: dict[str, _Verified] = {}

    def principal(self, token: str) -> Principal:
        """The principal of a token. Raises UnauthenticatedError with the reason; UnavailableError without keys."""
        if len(token) > JWT_LENGTH_MAX:
            message = f"the JWT has more than {JWT_LENGTH_MAX} characters"
            raise UnauthenticatedError(message)
        keys = self._source.keys()
        digest = token_digest(token)
        kept = self._kept.get(digest)
        now = self._clock.epoch_millis() / 1000
        if kept is not None and kept.keys is keys and now < kept.ends:
            return kept.principal
        claims = self._claims(token, keys)
        ends = self._check_times(claims, now)
        principal = self._principal(claims)
        self._keep(digest, _Verified(principal, ends, keys))
        return principal

    def _claims(self, token: str, keys: JwtKeys) -> Mapping[str, Any]:
        """The claims of a token with the right signature, issuer and audience. Raises UnauthenticatedError."""
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            message = "that is no JWT"
            raise UnauthenticatedError(message) from None
        kid, algorithm = header.get("kid", ""), header.get("alg")
        if not isinstance(kid, str) or len(kid) > _KID_LENGTH_MAX or not isinstance(algorithm, str) or "crit" in header:
            message = "the JWT's header is none that is taken here (alg, kid, crit)"
            raise UnauthenticatedError(message)
        key = keys.candidate(kid, algorithm)
        if key is None:
            raise self._no_key(keys, kid, algorithm)
        try:
            claims = jwt.decode(
                token,
                key=key.key,
                algorithms=sorted(key.algorithms),
                audience=settings.audiences,
                issuer=settings.issuer,
                # The library would read the system's clock; `_check_times` reads the injected one.
                options={"verify_exp": False, "verify_nbf": False, "verify_iat": False, "require": ["iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise UnauthenticatedError(_why(error)) from None
        return claims

    def _no_key(self, keys: JwtKeys, kid: str, algorithm: str) -> UnauthenticatedError | UnavailableError:
        if keys.knows(kid):
            return UnauthenticatedError(
                f"no key of security.jwt.* verifies a JWT of the algorithm {algorithm[:_SHOWN_MAX]!r}"
                + ("" if kid or not keys.has_names else ", or several do and it names none (kid)")
            )
        if self._source.look_again():
            return UnavailableError(f"the key {kid[:_SHOWN_MAX]!r} of this JWT is being looked for: ask again")
        return UnauthenticatedError(f"there is no key {kid[:_SHOWN_MAX]!r} in security.jwt.jwks")

    def _check_times(self, claims: Mapping[str, Any], now: float) -> float:
        """The end of the token's validity, leeway included, in seconds since 1970. Raises UnauthenticatedError."""
        leeway = self._settings.leeway
        ends = _time(claims, "exp")
        if ends is None:
            message = "the JWT never ends: a claim exp is required"
            raise UnauthenticatedError(message)
        if now >= ends + leeway:
            message = "the JWT has expired: get a new one"
            raise UnauthenticatedError(message)
        for name in ("nbf", "iat"):
            begins = _time(claims, name)
            if begins is not None and now < begins - leeway:
                message = f"the JWT is not valid yet ({name}): are the clocks right?"
                raise UnauthenticatedError(message)
        return ends + leeway

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        settings = self._settings
        name = _claim(claims, settings.name_claim)
        role = self._role(_claim(claims, settings.role_claim))
        namespace = _claim(claims, settings.namespace_claim)
        if namespace is None:
            namespace = ALL_NAMESPACES if role is Role.ADMIN else DEFAULT_NAMESPACE
        if isinstance(name, str) and isinstance(namespace, str) and _are_rights(name, role, namespace):
            return Principal(name, role, namespace, via=VIA)
        message = (
            f"the JWT's claims {settings.name_claim} and {settings.namespace_claim} are not those of a principal: "
            "expected a name of up to 127 letters, digits and . _ @ -, not 'admin', and a namespace, or '*', which an "
            "admin has"
        )
        raise UnauthenticatedError(message)

    def _role(self, value: object) -> Role:
        """The highest of the named roles. Raises UnauthenticatedError when there is none."""
        values = value if isinstance(value, list) else [value]
        known = self._settings.roles or {role.text: role for role in Role}
        found = [known[one] for one in values if isinstance(one, str) and one in known]
        if not found:
            message = (
                f"the JWT names no role: its claim {self._settings.role_claim} has to be one of "
                f"{', '.join(sorted(known))}"
            )
            raise UnauthenticatedError(message)
        return max(found)

    def _keep(self, digest: str, verified: _Verified) -> None:
        self._kept.pop(digest, None)
        self._kept[digest] = verified
        if len(self._kept) > _KEPT_MAX:
            del self._kept[next(iter(self._kept))]


def _are_rights(name: str, role: Role, namespace: str) -> bool:
    try:
        check_principal_name(name)
        check_rights(role, namespace)
    except InvalidInputError:
        return False
    return True


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim `name`; `a.b` may also be `b` within `a`. None when there is none."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """A claim in seconds since 1970, None when it is missing. Raises UnauthenticatedError."""
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        seconds = float(value) if is_number else math.nan
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        message = f"the JWT's claim {name} is no time"
        raise UnauthenticatedError(message)
    return seconds


def _why(error: Exception) -> str:
    """The message for the client, without the library's text, which may repeat content of the token."""
    match error:
        case jwt.InvalidSignatureError():
            return "the JWT's signature is not that of its key"
        case jwt.InvalidIssuerError():
            return "the JWT is of another issuer than security.jwt.issuer"
        case jwt.InvalidAudienceError():
            return "the JWT is for another audience than security.jwt.audience"
        case jwt.MissingRequiredClaimError():
            return "the JWT names no issuer (iss) or no audience (aud)"
        case _:
            return "that is no JWT"

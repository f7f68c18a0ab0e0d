"""Keys that verify JSON Web Tokens: of one file, or of a JSON Web Key Set (R48).

The kind of a key decides about its algorithms, never the token: no key has `none`, and a public key is never used as
the secret of an HMAC. Values only, except `read_key_file`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from runtime.common.errors import InvalidInputError
from runtime.security.private_files import read_private

KEY_SET_BYTES_MAX = 256 * 1024
KEYS_MAX = 100
SECRET_BYTES_MIN = 32
_RSA_BITS_MIN = 2048
_RSA_BITS_MAX = 8192
"""With more bits a verification would take too long for a request."""
_PEM = b"-----BEGIN"
_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_SECRET = frozenset({"HS256", "HS384", "HS512"})

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One key and its algorithms. `kid` "": it has no name."""

    kid: str
    algorithms: frozenset[str]
    key: PublicKey | bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class JwtKeys:
    """The keys of an issuer. `has_names`: a token's `kid` names the key. It has no meaning for a file with one key."""

    keys: tuple[VerificationKey, ...]
    has_names: bool

    def candidate(self, kid: str, algorithm: str) -> VerificationKey | None:
        """The key that may have signed a token, None when none fits, or several do because it has no `kid`."""
        fitting = [one for one in self.keys if algorithm in one.algorithms]
        if self.has_names and kid:
            fitting = [one for one in fitting if one.kid == kid]
        return fitting[0] if len(fitting) == 1 else None

    def knows(self, kid: str) -> bool:
        """True when there is a key of that name, or when names have no meaning."""
        return not self.has_names or not kid or any(one.kid == kid for one in self.keys)


def read_key_file(path: Path) -> JwtKeys:
    """A public key in PEM form, or a secret in a private file. Raises InvalidInputError."""
    try:
        with path.open("rb") as file:
            data = file.read(KEY_SET_BYTES_MAX)
    except OSError as error:
        message = f"security.jwt.key-file: {path} cannot be read ({error.strerror})"
        raise InvalidInputError(message) from error
    try:
        if _PEM in data:
            return JwtKeys((_public(data),), has_names=False)
        secret = read_private(path, "security.jwt.key-file", size_max=KEY_SET_BYTES_MAX).strip()
        return JwtKeys((_secret(secret),), has_names=False)
    except InvalidInputError as error:
        message = f"security.jwt.key-file: {path}: {error}"
        raise InvalidInputError(message) from error


def _public(pem: bytes) -> VerificationKey:
    if b"PRIVATE KEY-----" in pem:
        message = "it holds a private key, which only the issuer should have: name the public key"
        raise InvalidInputError(message)
    try:
        key = load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        message = "it holds no public key in PEM form (-----BEGIN PUBLIC KEY-----)"
        raise InvalidInputError(message) from error
    return VerificationKey("", _algorithms_of(key), _known(key))


def _secret(secret: bytes) -> VerificationKey:
    if len(secret) < SECRET_BYTES_MIN:
        message = f"a secret has at least {SECRET_BYTES_MIN} bytes, this one has {len(secret)}"
        raise InvalidInputError(message)
    # A hash longer than its secret (RFC 7518, 3.2) would only look stronger.
    fitting = frozenset(one for one in _SECRET if len(secret) * 8 >= int(one[2:]))
    return VerificationKey("", fitting, secret)


def parse_key_set(data: bytes) -> JwtKeys:
    """A JSON Web Key Set (RFC 7517). Skips keys that cannot be used; raises InvalidInputError when none is left."""
    if len(data) > KEY_SET_BYTES_MAX:
        message = f"it has more than {KEY_SET_BYTES_MAX} bytes"
        raise InvalidInputError(message)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        message = "it is no JSON"
        raise InvalidInputError(message) from error
    entries = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(entries, list) or len(entries) > KEYS_MAX:
        message = f'it is no set of at most {KEYS_MAX} keys: expected {{"keys": [...]}}'
        raise InvalidInputError(message)
    keys = tuple(_usable(entries))
    if not keys:
        message = "no key in it verifies tokens: RSA of 2048 bits or more, P-256, P-384, P-521, or Ed25519"
        raise InvalidInputError(message)
    return JwtKeys(keys, has_names=True)


def _usable(entries: Iterable[Any]) -> Iterable[VerificationKey]:
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("kty") not in ["RSA", "EC", "OKP"]:
            continue  # kty oct is a secret, and does not belong into a public set
        if "d" in entry:
            message = "it holds a private key, which only the issuer should have"
            raise InvalidInputError(message)
        operations = entry.get("key_ops", ["verify"])
        if entry.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
            continue
        try:
            key = jwt.PyJWK.from_dict({name: value for name, value in entry.items() if name != "alg"}).key
            algorithms = _algorithms_of(key)
        except (jwt.PyJWTError, InvalidInputError, ValueError, TypeError, KeyError, AttributeError):
            continue
        if "alg" in entry:
            algorithms &= {str(entry["alg"])}
        if algorithms:
            yield VerificationKey(str(entry.get("kid", "")), algorithms, _known(key))


def _algorithms_of(key: object) -> frozenset[str]:
    """The algorithms of this kind of key. Raises InvalidInputError."""
    match key:
        case RSAPublicKey():
            if not _RSA_BITS_MIN <= key.key_size <= _RSA_BITS_MAX:
                message = f"an RSA key has {_RSA_BITS_MIN} to {_RSA_BITS_MAX} bits, this one has {key.key_size}"
                raise InvalidInputError(message)
            return _RSA
        case EllipticCurvePublicKey() if key.curve.name in _CURVES:
            return frozenset({_CURVES[key.curve.name]})
        case Ed25519PublicKey():
            return frozenset({"EdDSA"})
        case _:
            message = "keys of that kind are not taken: RSA, P-256, P-384, P-521 and Ed25519 are"
            raise InvalidInputError(message)


def _known(key: object) -> PublicKey:
    assert isinstance(key, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey), key
    return key

"""What people and identity providers show, and what providers of delegation tokens say."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError, UnauthenticatedError
from runtime.security.json_web_tokens import JwtSettings, JwtVerifier
from runtime.security.jwt_keys import JwtKeys, parse_key_set, read_key_file
from runtime.security.principals import check_principal_name, check_rights
from runtime.security.token_content import decode_values, encode_values, read_tokens
from runtime.taskexecutor.credentials.token_values import TokenValues
from tests.fuzz.surface import Surface
from tests.kit.services.identity_provider import AUDIENCE, ISSUER, by_hand, claims, jwk, key_set, public_pem

SECRET = b"s" * 64
NOW = 1_800_000_000
SETTINGS = JwtSettings(ISSUER, (AUDIENCE,), 30, "sub", "realm.roles", "namespace", {})
KEY = ec.derive_private_key(4711, ec.SECP256R1())


class _At(Clock):
    """Always the same moment."""

    def monotonic(self) -> float:
        return 0.0

    def epoch_millis(self) -> int:
        return NOW * 1000


class _Fixed:
    """Keys that nobody changes."""

    def __init__(self, keys: JwtKeys) -> None:
        self._keys = keys

    def keys(self) -> JwtKeys:
        return self._keys

    def look_again(self) -> bool:
        return False


def _begin_sign_in() -> Callable[[bytes], object]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-sign-in."))
    file = folder / "key"
    file.touch(mode=0o600)
    file.write_bytes(SECRET)
    by_secret = JwtVerifier(SETTINGS, _Fixed(read_key_file(file)), _At())
    by_set = JwtVerifier(SETTINGS, _Fixed(parse_key_set(key_set(jwk(KEY, "k1")))), _At())

    def feed(data: bytes) -> object:
        rest = data[1:]
        match data[:1]:
            case b"s":
                return len(parse_key_set(rest).keys)
            case b"k":
                file.write_bytes(rest)
                return len(read_key_file(file).keys)
            case b"j":
                return by_set.principal(rest.decode("latin-1"))
            case _:
                header, _, payload = rest.partition(b"\n")
                found = by_secret.principal(by_hand(header, payload, SECRET))
                check_principal_name(found.name)
                check_rights(found.role, found.namespace)
                return found

    return feed


def _sign_in_seeds() -> Sequence[bytes]:
    said = json.dumps(claims(NOW, role=None, realm={"roles": ["x", "viewer"]})).encode()
    header = b'{"typ":"JWT","alg":"HS256","kid":"k1"}'
    return [
        b"s" + key_set(jwk(KEY, "k1", use="sig", alg="ES256")),
        b"k" + public_pem(KEY),
        b"k" + SECRET,
        b"j" + by_hand(header, said, SECRET).encode(),
        b"c" + header + b"\n" + said,
    ]


def _begin_tokens() -> Callable[[bytes], object]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-tokens."))

    def feed(data: bytes) -> object:
        rest = data[1:]
        match data[:1]:
            case b"t":
                obtained = read_tokens(rest, must_end=False)
                assert decode_values(encode_values(obtained.values)) == obtained.values
                return obtained.valid_until_millis
            case _:
                (folder / "lake.json").write_bytes(rest)
                found = TokenValues(folder, "fsspec.").newest()
                assert {type(one) for pair in found.items() for one in pair} <= {str}
                return len(found)

    return feed


def _token_seeds() -> Sequence[bytes]:
    content = json.dumps({"values": {"fsspec.s3.token": "x", "other": "y"}, "expires_at": "2030-01-31T12:00:00Z"})
    return [b"t" + content.encode(), b"v" + content.encode(), b't{"values": {"a": "b"}, "expires_at": 1900000000.5}']


SURFACES = (
    Surface(
        "sign-in",
        _begin_sign_in,
        _sign_in_seeds,
        (InvalidInputError, UnauthenticatedError),
        prefix=1,
        tokens=(b'"none"', b'"crit":["exp"]', b'"exp":1e999', b'"d":"AQAB"', b"\n{", b"..", b"NaN"),
    ),
    Surface(
        "delegation-tokens", _begin_tokens, _token_seeds, (InvalidInputError,), prefix=1, tokens=(b"1e999", b"null")
    ),
)

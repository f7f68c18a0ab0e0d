"""R48: which JSON Web Tokens sign in, as whom, and what each wrong one is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from runtime.aio.clock import SystemClock
from runtime.common.errors import InvalidInputError, UnauthenticatedError, UnavailableError
from runtime.security.json_web_tokens import JWT_LENGTH_MAX, JwtSettings, JwtVerifier
from runtime.security.jwt_keys import KEYS_MAX, JwtKeys, parse_key_set, read_key_file
from runtime.security.principals import Principal, Role
from tests.kit.services.identity_provider import (
    AUDIENCE,
    ISSUER,
    PrivateKey,
    by_hand,
    claims,
    jwk,
    key_set,
    private_pem,
    public_pem,
    rsa_key,
    signed,
)

NOW = 1_800_000_000
LEEWAY = 30
SECRET = b"s" * 64
SAM = Principal("sam", Role.SUBMITTER, "team-a", via="jwt")
SETTINGS = JwtSettings(ISSUER, (AUDIENCE, "other"), LEEWAY, "sub", "role", "namespace", {})


class At(SystemClock):
    """A moment, moved by hand."""

    now = float(NOW)

    def epoch_millis(self) -> int:
        return int(self.now * 1000)


class Fixed:
    """Keys that do not change unless told; `more` is what a further look would say."""

    def __init__(self, keys: JwtKeys, *, more: bool = False) -> None:
        self.now = keys
        self.more = more
        self.looked = 0

    def keys(self) -> JwtKeys:
        return self.now

    def look_again(self) -> bool:
        self.looked += 1
        return self.more


EC_KEYS = {
    name: ec.generate_private_key(curve) for name, curve in (("ES256", ec.SECP256R1()), ("ES384", ec.SECP384R1()))
}
ED_KEY = ed25519.Ed25519PrivateKey.generate()


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[[bytes], JwtKeys]:
    """The keys of a key file."""

    def read(content: bytes) -> JwtKeys:
        path = tmp_path / "key"
        path.write_bytes(content)
        path.chmod(0o600)
        return read_key_file(path)

    return read


def verifier(keys: JwtKeys, settings: JwtSettings = SETTINGS) -> JwtVerifier:
    return JwtVerifier(settings, Fixed(keys), At())


def set_of(*entries: dict[str, Any]) -> JwtKeys:
    return parse_key_set(key_set(*entries))


KINDS: list[tuple[PrivateKey, str]] = [
    *((rsa_key(), name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    *((key, name) for name, key in EC_KEYS.items()),
    (ec.generate_private_key(ec.SECP521R1()), "ES512"),
    (ED_KEY, "EdDSA"),
]


@pytest.mark.parametrize(("key", "algorithm"), KINDS, ids=[name for _, name in KINDS])
def test_a_key_verifies_what_it_has_signed(
    file_of: Callable[[bytes], JwtKeys], key: PrivateKey, algorithm: str
) -> None:
    token = signed(claims(NOW), key, algorithm, kid="k1")
    assert verifier(file_of(public_pem(key))).principal(token) == SAM
    assert verifier(set_of(jwk(rsa_key(1), "k0"), jwk(key, "k1"))).principal(token) == SAM


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_secret_verifies_what_it_has_signed(file_of: Callable[[bytes], JwtKeys], algorithm: str) -> None:
    assert verifier(file_of(SECRET + b"\n")).principal(signed(claims(NOW), SECRET, algorithm)) == SAM


def _good(**more: Any) -> str:
    return signed(claims(NOW, **more), rsa_key(), "RS256", kid="k1")


def _headed(**header: Any) -> str:
    """A token with that header, signed with the text of the public key as its secret."""
    return by_hand(
        json.dumps({"typ": "JWT", **header}).encode(), json.dumps(claims(NOW)).encode(), public_pem(rsa_key())
    )


RSA_PEM = public_pem(rsa_key())
SAID = json.dumps(claims(NOW)).encode()
DEEP = b"[" * 5000 + b"]" * 5000

WRONG: dict[str, tuple[str, str]] = {
    "alg none": (by_hand(b'{"alg":"none"}', SAID), "algorithm 'none'"),
    "alg None": (by_hand(b'{"alg":"None"}', SAID), "algorithm 'None'"),
    "alg none, signed": (by_hand(b'{"alg":"none"}', SAID, RSA_PEM), "algorithm 'none'"),
    "no alg": (by_hand(b'{"typ":"JWT"}', SAID, RSA_PEM), "header"),
    "alg a number": (by_hand(b'{"alg":1}', SAID, RSA_PEM), "header"),
    "alg a list": (by_hand(b'{"alg":["RS256"]}', SAID, RSA_PEM), "header"),
    "HS256 with the RSA public key": (by_hand(b'{"alg":"HS256","kid":"k1"}', SAID, RSA_PEM), "algorithm 'HS256'"),
    "HS256 called RS256": (by_hand(b'{"alg":"RS256","kid":"k1"}', SAID, RSA_PEM), "signature"),
    "another RSA key": (signed(claims(NOW), rsa_key(1), "RS256", kid="k1"), "signature"),
    "another kind of key": (signed(claims(NOW), EC_KEYS["ES256"], "ES256", kid="k1"), "algorithm 'ES256'"),
    "a key of its own in the header": (
        signed(claims(NOW), rsa_key(1), "RS256", kid="k1", jwk=jwk(rsa_key(1), "k1")),
        "signature",
    ),
    "an address of its own for keys": (
        signed(claims(NOW), rsa_key(1), "RS256", kid="k1", jku="https://evil.example.com/"),
        "signature",
    ),
    "unknown kid": (signed(claims(NOW), rsa_key(), "RS256", kid="k9"), "there is no key 'k9'"),
    "kid a path": (signed(claims(NOW), rsa_key(), "RS256", kid="../../../../dev/null"), "there is no key"),
    "kid a query": (signed(claims(NOW), rsa_key(), "RS256", kid="' OR 1=1 --"), "there is no key"),
    "kid a number": (_headed(alg="RS256", kid=7), "JWT"),
    "kid too long": (_headed(alg="RS256", kid="k" * 257), "header"),
    "crit": (signed(claims(NOW), rsa_key(), "RS256", kid="k1", crit=["exp"]), "JWT"),
    "wrong issuer": (_good(iss="https://id.example.com"), "another issuer"),
    "issuer a list": (_good(iss=[ISSUER]), "JWT"),
    "no issuer": (_good(iss=None), "no issuer"),
    "wrong audience": (_good(aud="flink"), "another audience"),
    "audience of others": (_good(aud=["a", "b"]), "another audience"),
    "audience a number": (_good(aud=[1]), "another audience"),
    "no audience": (_good(aud=None), "no issuer .iss. or no audience"),
    "expired": (_good(exp=NOW - LEEWAY), "has expired"),
    "expired long ago": (_good(exp=1), "has expired"),
    "no exp": (_good(exp=None), "never ends"),
    "exp a text": (_good(exp="2030"), "exp is no time"),
    "exp true": (_good(exp=True), "exp is no time"),
    "exp infinite": (_good(exp=float("inf")), "exp is no time"),
    "exp too large": (_good(exp=10**400), "exp is no time"),
    "exp not a number": (_good(exp=float("nan")), "exp is no time"),
    "nbf future": (_good(nbf=NOW + LEEWAY + 1), "not valid yet .nbf."),
    "iat future": (_good(iat=NOW + LEEWAY + 1), "not valid yet .iat."),
    "no role": (_good(role=None), "names no role"),
    "a role that is none": (_good(role="root"), "names no role: its claim role has to be one of admin, operator"),
    "a role that is none of a list": (_good(role=["root", 7, None]), "names no role"),
    "role a map": (_good(role={"admin": True}), "names no role"),
    "no name": (_good(sub=None), "not those of a principal"),
    "name of the admin": (_good(sub="admin"), "not those of a principal"),
    "name like the admin's": (_good(sub="Admin."), "not those of a principal"),
    "name with escapes": (_good(sub="a\x1b[2J"), "not those of a principal"),
    "namespace that is none": (_good(namespace="Team A"), "not those of a principal"),
    "namespace a list": (_good(namespace=["a"]), "not those of a principal"),
    "admin of one namespace": (_good(role="admin"), "not those of a principal"),
    "payload a list": (by_hand(b'{"alg":"RS256","kid":"k1"}', b"[]", RSA_PEM), "signature"),
    "header a list": (by_hand(b"[]", SAID, RSA_PEM), "no JWT"),
    "header a deep list": (by_hand(DEEP[:2000] + DEEP[-2000:], SAID, RSA_PEM), "no JWT"),
    "header no JSON": (by_hand(b"\xff\x00", SAID, RSA_PEM), "no JWT"),
    "header a huge number": (by_hand(b'{"alg":' + b"9" * 5000 + b"}", SAID, RSA_PEM), "JWT"),
    "no base64": ("eyJ!.e.e", "no JWT"),
    "empty": ("..", "no JWT"),
    "too long": ("e" * JWT_LENGTH_MAX + ".e.e", "more than 8192 characters"),
    "no ASCII": ("eyJ\u00e9.e.e", "no JWT"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_in_a_sentence(name: str) -> None:
    token, said = WRONG[name]
    with pytest.raises(UnauthenticatedError, match=said) as caught:
        verifier(set_of(jwk(rsa_key(), "k1"))).principal(token)
    assert len(str(caught.value)) < 300


def test_what_is_wrong_is_refused_with_a_secret_too(file_of: Callable[[bytes], JwtKeys]) -> None:
    asked = verifier(file_of(SECRET))
    for token, said in (
        (by_hand(b'{"alg":"none"}', SAID), "algorithm 'none'"),
        (signed(claims(NOW), rsa_key(), "RS256"), "algorithm 'RS256'"),
        (by_hand(b'{"alg":"HS256"}', SAID, b"t" * 64), "signature"),
        (by_hand(b'{"alg":"HS256"}', DEEP[:1500] + DEEP[-1500:], SECRET), "no JWT"),
        (by_hand(b'{"alg":"HS256"}', b'"text"', SECRET), "no JWT"),
    ):
        with pytest.raises(UnauthenticatedError, match=said):
            asked.principal(token)


def test_clocks_may_differ_a_little() -> None:
    asked = verifier(set_of(jwk(rsa_key(), "k1")))
    assert asked.principal(_good(exp=NOW - LEEWAY + 1, nbf=NOW + LEEWAY, iat=NOW + LEEWAY)) == SAM
    assert asked.principal(_good(exp=NOW + 5.5, iat=None)) == SAM


def test_what_was_verified_ends_with_its_time_and_with_its_key() -> None:
    source, clock = Fixed(set_of(jwk(rsa_key(), "k1"))), At()
    asked = JwtVerifier(SETTINGS, source, clock)
    token = _good(exp=NOW + 10)
    assert asked.principal(token) is asked.principal(token), "it is not verified for each request"
    clock.now = NOW + 10 + LEEWAY
    with pytest.raises(UnauthenticatedError, match="has expired"):
        asked.principal(token)
    clock.now = NOW
    source.now = set_of(jwk(rsa_key(1), "k1"))
    with pytest.raises(UnauthenticatedError, match="signature"):
        asked.principal(token)


def test_verified_ones_are_kept_in_bounds() -> None:
    asked = verifier(parse_key_set(key_set(jwk(ED_KEY, "k1"))))
    for number in range(1010):
        asked.principal(signed(claims(NOW, jti=str(number)), ED_KEY, "EdDSA", kid="k1"))
    assert len(asked._kept) == 1000


def test_a_key_that_may_come_is_asked_for_again() -> None:
    source = Fixed(set_of(jwk(rsa_key(), "k1")), more=True)
    asked = JwtVerifier(SETTINGS, source, At())
    with pytest.raises(UnavailableError, match="ask again"):
        asked.principal(signed(claims(NOW), rsa_key(), "RS256", kid="k2"))
    for token in (_good(exp=1), signed(claims(NOW), EC_KEYS["ES256"], "ES256", kid="k1"), by_hand(b"{}", SAID)):
        with pytest.raises(UnauthenticatedError):
            asked.principal(token)
    assert source.looked == 1


def test_a_token_without_kid_leaves_no_choice() -> None:
    token = signed(claims(NOW), rsa_key(), "RS256")
    ec_entry = jwk(EC_KEYS["ES256"], "e")
    assert verifier(set_of(jwk(rsa_key(), "k1"), ec_entry)).principal(token) == SAM
    with pytest.raises(UnauthenticatedError, match="names none"):
        verifier(set_of(jwk(rsa_key(), "k1"), jwk(rsa_key(1), "k2"))).principal(token)


def test_groups_stand_for_roles_and_claims_may_be_nested() -> None:
    settings = replace(
        SETTINGS,
        name_claim="email",
        role_claim="realm_access.groups",
        namespace_claim="https://example.com/team",
        roles={"etl": Role.SUBMITTER, "ops": Role.OPERATOR},
    )
    asked = verifier(set_of(jwk(rsa_key(), "k1")), settings)

    def ask(*groups: str, **more: Any) -> Principal:
        return asked.principal(_good(email="sam@example.com", realm_access={"groups": groups}, **more))

    assert ask("all", "etl") == Principal("sam@example.com", Role.SUBMITTER, "default", via="jwt")
    assert ask("etl", "ops", **{"https://example.com/team": "*"}) == Principal(
        "sam@example.com", Role.OPERATOR, "*", via="jwt"
    )
    for none in ((), ("all",), ("submitter",)):
        with pytest.raises(UnauthenticatedError, match="has to be one of etl, ops"):
            ask(*none)


def test_an_admin_is_one_of_all_namespaces() -> None:
    asked = verifier(set_of(jwk(rsa_key(), "k1")))
    assert asked.principal(_good(role="admin", namespace=None)) == Principal("sam", Role.ADMIN, "*", via="jwt")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (private_pem(rsa_key()), "private key"),
        (b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n", "no public key"),
        (public_pem(rsa_key(0, 1024)), "2048 to 8192 bits"),
        (public_pem(ec.generate_private_key(ec.SECP256K1())), "keys of that kind"),
        (b"short", "at least 32 bytes"),
        (b"", "at least 32 bytes"),
    ],
)
def test_a_key_file_that_cannot_be_used_is_refused(
    file_of: Callable[[bytes], JwtKeys], content: bytes, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        file_of(content)


def test_a_secret_is_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o644)
    with pytest.raises(InvalidInputError, match="can be read by others"):
        read_key_file(path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_key_file(tmp_path / "none")


def test_of_a_key_set_what_verifies_is_used() -> None:
    keys = set_of(
        jwk(rsa_key(), "enc", use="enc"),
        jwk(rsa_key(), "ops", key_ops=["encrypt"]),
        jwk(rsa_key(0, 1024), "short"),
        jwk(rsa_key(), "one", alg="RS512", use="sig"),
        jwk(rsa_key(), "of another kind", alg="HS256"),
        {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"},
        {"kty": "RSA", "kid": "broken", "n": 1},
        {"kty": "EC", "kid": "broken", "crv": [], "x": {}, "y": None},
        {"kty": "none"},
    )
    assert [(one.kid, sorted(one.algorithms)) for one in keys.keys] == [("one", ["RS512"])]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b"", "no JSON"),
        (b"[]", "no set"),
        (b'{"keys": {}}', "no set"),
        (b"[" * 100_000, "no JSON"),
        (key_set(), "no key in it"),
        (key_set(*[{"kty": "RSA"}] * (KEYS_MAX + 1)), "at most 100 keys"),
        (key_set({"kty": "oct", "k": "c2VjcmV0" * 10}), "no key in it"),
        (b" " * 262_145, "more than 262144 bytes"),
        (key_set({**jwk(rsa_key(), "k"), "d": "AQAB"}), "private key"),
    ],
)
def test_a_key_set_that_cannot_be_used_is_refused(document: bytes, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        parse_key_set(document)

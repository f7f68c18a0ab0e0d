"""R48: JSON Web Tokens are configured completely: issuer, audience and keys."""

from __future__ import annotations

import pytest

from runtime.config.loading import InvalidConfigurationError, load

WHOLE = (
    "security.jwt.issuer=https://id.example.com/",
    "security.jwt.audience=flinklike",
    "security.jwt.key-file=/keys/issuer.pem",
)
FETCHED = (*WHOLE[:2], "security.jwt.jwks=https://id.example.com/keys", "security.jwt.jwks-ca-file=/ca.pem")


def problems(*options: str) -> tuple[str, ...]:
    with pytest.raises(InvalidConfigurationError) as caught:
        load(None, environment={}, dynamic=[*options])
    return tuple(caught.value.problems)


def test_all_of_it_is_accepted() -> None:
    for options in (WHOLE, FETCHED, (*WHOLE[:2], "security.jwt.jwks=/keys/set.json")):
        load(None, environment={}, dynamic=[*options])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (WHOLE[1:], "JWTs need security.jwt.issuer"),
        ((WHOLE[0], WHOLE[2]), "JWTs need security.jwt.audience"),
        (WHOLE[:2], "JWTs need either security.jwt.key-file or security.jwt.jwks"),
        ((*WHOLE, FETCHED[2]), "JWTs need either security.jwt.key-file or security.jwt.jwks"),
        ((*WHOLE, "security.authentication=none"), "has no effect with security.authentication: none"),
        ((*WHOLE[:2], "security.jwt.jwks=http://id.example.com/keys"), "has to begin with https://"),
        ((*WHOLE[:2], "security.jwt.jwks=https://[::1/keys"), "is no address"),
        ((*WHOLE[:2], "security.jwt.jwks=https:///keys"), "is no address"),
        ((*WHOLE[:2], "security.jwt.jwks=https://id.example.com:99999/keys"), "is no address"),
        ((*WHOLE, FETCHED[3]), "security.jwt.jwks-ca-file has no effect"),
        ((*WHOLE[:2], "security.jwt.key-file=issuer.pem"), "has to be a path from /"),
        ((*WHOLE[:2], "security.jwt.jwks=keys.json"), "has to be a path from /"),
        ((*WHOLE, "security.jwt.roles=etl=root"), "a value of viewer, submitter, operator, admin"),
        ((*WHOLE, "security.jwt.roles=etl"), "expected name=value of each"),
        ((*WHOLE, "security.jwt.roles=a=viewer,a=admin"), "no name twice"),
    ],
)
def test_what_is_missing_or_of_no_effect_is_told(options: tuple[str, ...], said: str) -> None:
    assert any(said in problem for problem in problems(*options))

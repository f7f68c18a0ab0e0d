"""Options of providers of delegation tokens: the operator chooses their names, and their values are never shown."""

from __future__ import annotations

import pytest

from runtime.config.loading import InvalidConfigurationError, load

PREFIX = "security.delegation.token.provider."


def test_they_are_read_and_shown_masked() -> None:
    configuration = load(
        None,
        environment={},
        dynamic=[
            f"{PREFIX}vault.type=command",
            f"{PREFIX}vault.command=/bin/vault --password hush",
            f"{PREFIX}x.enabled=false",
        ],
    )
    assert {name: (one.kind, dict(one.own)) for name, one in configuration.token_providers.items()} == {
        "vault": ("command", {"command": "/bin/vault --password hush"})
    }
    assert "hush" not in str(configuration.shown()) + repr(configuration.token_providers)
    assert f"{PREFIX}vault.command" in dict(configuration.shown())


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("vault=hush", "<name>.<option>"),
        ("Vault.path=hush", "a name of small letters"),
        ("../x.path=hush", "a name of small letters"),
        ("vault.enabled=hush", "expected true or false"),
    ],
)
def test_one_that_cannot_be_meant_is_refused(setting: str, words: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=words) as told:
        load(None, environment={}, dynamic=[PREFIX + setting])
    assert "hush" not in str(told.value)

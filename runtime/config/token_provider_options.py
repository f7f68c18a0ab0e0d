"""`security.delegation.token.provider.<name>.*`: options whose names are the operator's and the provider's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.common.masking import is_secret_key
from runtime.config.option import parse_bool

PREFIX = "security.delegation.token.provider."
_KEY = re.compile(re.escape(PREFIX) + r"([a-z][a-z0-9_-]{0,62})\.([a-z][a-z0-9_.-]{0,126})\Z")
_OURS = frozenset({"enabled", "type"})


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """One provider: `kind` is what it is of, `own` what it is told."""

    name: str
    kind: str
    own: Mapping[str, str] = field(repr=False)

    @property
    def prefix(self) -> str:
        """What the keys of its options begin with."""
        return f"{PREFIX}{self.name}."


def key_problem(key: str, value: str) -> str:
    """What is wrong with a setting that begins with PREFIX, "" if nothing is."""
    found = _KEY.match(key)
    if found is None:
        return f"expected {PREFIX}<name>.<option>, a name of small letters, digits, '-' and '_'"
    if found.group(2) == "enabled":
        try:
            parse_bool(value)
        except ValueError as error:
            return str(error)
    return ""


def enabled_providers(settings: Mapping[str, str]) -> Mapping[str, ProviderOptions]:
    """By name: those of which anything is said, and not that they are off. The type is the name unless it is said."""
    grouped: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        found = _KEY.match(key)
        assert found is not None, key
        grouped.setdefault(found.group(1), {})[found.group(2)] = value.strip()
    return {
        name: ProviderOptions(
            name, options.get("type", name), {key: value for key, value in options.items() if key not in _OURS}
        )
        for name, options in sorted(grouped.items())
        if parse_bool(options.get("enabled", "true"))
    }


def is_secret(key: str) -> bool:
    """Is that an option of a provider whose name says that it holds a secret?"""
    match = _KEY.match(key)
    return match is not None and is_secret_key(match[2])

"""`security.delegation.token.provider.<name>.*`: options whose names come from the operator and from the provider."""

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
    """One provider: `kind` is its type, `own` holds its own options without the prefix."""

    name: str
    kind: str
    own: Mapping[str, str] = field(repr=False)

    @property
    def prefix(self) -> str:
        """The beginning of its options' keys."""
        return f"{PREFIX}{self.name}."


def key_problem(key: str, value: str) -> str:
    """The problem of a setting whose key begins with PREFIX, "" when there is none."""
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
    """The providers that have an option and are not disabled, by name. The default of the type is the name."""
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
    """True for the key of a provider's option whose name says that it holds a secret."""
    match = _KEY.match(key)
    return match is not None and is_secret_key(match[2])

"""Short-lived credentials of external services: their providers, their messages and their receivers (R51).

As in Flink, a provider obtains tokens in the leading JobManager, and a receiver takes them in each TaskManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObtainedTokens:
    """The tokens of one provider: values by name, valid until `valid_until_millis` (since 1970; 0 = without an end)."""

    values: Mapping[str, str] = field(repr=False)
    valid_until_millis: int = 0


class DelegationTokenProvider(Protocol):
    """Obtains tokens. Made with the options below `security.delegation.token.provider.<name>.`, once a JobManager.

    Called from a thread of its own, never twice at a time.
    """

    def obtain(self) -> ObtainedTokens:
        """New tokens. The caller logs an exception, so its text must show no token, and calls `obtain` again later."""

    def state(self) -> object:
        """A value that changes when `obtain` would return other tokens. None: only the time decides."""


class DelegationTokenReceiver(Protocol):
    """Takes the tokens of one provider in a TaskManager's process, in addition to the files that tasks read."""

    def receive(self, tokens: ObtainedTokens, /) -> None:
        """Called from a thread, with each new set. The caller logs exceptions."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """The latest tokens of one provider on their way to TaskManagers. `content`: the values, a JSON object of texts."""

    provider: str
    content: bytes = field(repr=False)
    valid_until_millis: int


@dataclass(frozen=True, slots=True)
class NewDelegationTokens:
    """New tokens of these providers, which replace the earlier ones. Tokens of other providers stay."""

    tokens: tuple[DelegationToken, ...]


@dataclass(frozen=True, slots=True)
class DelegationTokenStatus:
    """A provider as REST shows it. `failure`: why the last call has obtained no tokens, "" after a success.

    `is_obtained`: the provider has obtained tokens in this term, valid until `valid_until_millis` (0: without an end).
    """

    provider: str
    valid_until_millis: int
    failures: int
    failure: str
    is_obtained: bool = True

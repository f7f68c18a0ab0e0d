"""Short-lived credentials of services outside of the cluster: who obtains them, how they travel, who takes them (R51).

After Flink: a provider obtains tokens in the leading JobManager, a receiver takes them in each TaskManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObtainedTokens:
    """What a provider has obtained: values by name, which end at `valid_until_millis` since the epoch; 0 = never."""

    values: Mapping[str, str] = field(repr=False)
    valid_until_millis: int = 0


class DelegationTokenProvider(Protocol):
    """Obtains tokens. Made with the options below `security.delegation.token.provider.<name>.`, once a JobManager.

    Called from a thread of its own, never twice at a time.
    """

    def obtain(self) -> ObtainedTokens:
        """New tokens, or an exception whose text shows none: it is logged, and `obtain` is called again later."""

    def state(self) -> object:
        """Differs when `obtain` would give others than before, though no time has passed. None: only time tells."""


class DelegationTokenReceiver(Protocol):
    """Takes the tokens of one provider in a TaskManager's process, beside what every TaskManager does with them."""

    def receive(self, tokens: ObtainedTokens, /) -> None:
        """Called from a thread, with each new set. What it raises is logged."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """The latest tokens of one provider on their way to TaskManagers. `content`: the values, a JSON object of texts."""

    provider: str
    content: bytes = field(repr=False)
    valid_until_millis: int


@dataclass(frozen=True, slots=True)
class NewDelegationTokens:
    """These providers have new tokens: they take the place of those before. Of others nothing changes."""

    tokens: tuple[DelegationToken, ...]


@dataclass(frozen=True, slots=True)
class DelegationTokenStatus:
    """What REST shows of a provider. `failure`: why it has obtained none since, "" when the last call was good.

    `is_obtained`: it has obtained some in this term; they end at `valid_until_millis`, 0: they do not.
    """

    provider: str
    valid_until_millis: int
    failures: int
    failure: str
    is_obtained: bool = True

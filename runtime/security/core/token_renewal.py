"""When a provider of delegation tokens is asked again (R51). Times are seconds of a clock that does not jump."""

from __future__ import annotations

import math
from dataclasses import dataclass

RENEWAL_SECONDS_MIN = 1.0
"""The least pause: a provider that returns expired tokens must not be asked without one."""

RETRY_SECONDS_FIRST = 1.0


@dataclass(frozen=True, slots=True)
class RenewalSettings:
    """`time_ratio`: the share of a lifetime after which new tokens are obtained; `retry_backoff`: the longest pause
    between two tries that fail.
    """

    time_ratio: float = 0.75
    retry_backoff: float = 3600.0


class TokenRenewal:
    """One provider, asked at once, then at a share of each lifetime, after failures in growing intervals."""

    def __init__(self, settings: RenewalSettings) -> None:
        self._settings = settings
        self.due_at = -math.inf
        self.failures = 0

    def obtained(self, now: float, lifetime: float | None) -> None:
        """Tokens with this lifetime in seconds were obtained; None: they do not expire."""
        self.failures = 0
        if lifetime is None:
            self.due_at = math.inf
        else:
            self.due_at = now + max(self._settings.time_ratio * lifetime, RENEWAL_SECONDS_MIN)

    def failed(self, now: float) -> float:
        """A try has failed. Returns the pause until the next one, which doubles up to the backoff."""
        pause = min(RETRY_SECONDS_FIRST * 2.0 ** min(self.failures, 30), self._settings.retry_backoff)
        self.failures += 1
        self.due_at = now + pause
        return pause

    def changed(self) -> None:
        """The provider has new tokens: ask it now."""
        self.due_at = -math.inf

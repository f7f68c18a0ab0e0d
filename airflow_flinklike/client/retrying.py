"""Which failures of a transport are tried again, where and when. One policy for both clients; no I/O, no clock."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from airflow_flinklike.client.protocol import Response
from airflow_flinklike.exceptions import ClusterUnavailableError, JobRefusedError

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 3.0
_UNAVAILABLE = frozenset({502, 503, 504})


def check_addresses(addresses: Sequence[str]) -> tuple[str, ...]:
    """Addresses with a scheme and without a trailing slash. Raises JobRefusedError if there are none."""
    cleaned = [one.strip().rstrip("/") for one in addresses if one.strip()]
    if not cleaned:
        message = "no cluster address: give http://host:port of the JobManager's REST endpoint"
        raise JobRefusedError(message)
    return tuple(one if "://" in one else f"http://{one}" for one in cleaned)


class Attempts:
    """The tries of one request: rotates over the addresses, pauses with jitter, gives up when `budget` is used.

    `budget` is the sum of the pauses in seconds, so a cluster that restarts is ridden over.
    """

    def __init__(self, addresses: Sequence[str], budget: float) -> None:
        self._addresses = addresses
        self._budget = budget
        self._number = 0
        self._spent = 0.0

    @property
    def address(self) -> str:
        """Where to send it now."""
        return self._addresses[self._number % len(self._addresses)]

    def is_unavailable(self, response: Response) -> bool:
        """True for answers that say: not here, not now."""
        return response.status in _UNAVAILABLE

    def next_pause(self, reason: str) -> float:
        """Seconds until the next try. Raises ClusterUnavailableError when the budget is used."""
        if self._spent >= self._budget:
            addresses = ", ".join(self._addresses)
            message = f"no JobManager answers at {addresses} (tried for {self._budget:.0f} s): {reason}"
            raise ClusterUnavailableError(message)
        self._number += 1
        rounds = self._number // len(self._addresses)
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * float(1 << min(rounds, 10)))
        pause = longest * (0.5 + secrets.randbelow(500) / 1000)
        self._spent += pause
        return pause

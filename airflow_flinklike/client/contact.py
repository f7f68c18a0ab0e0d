"""Contact: whether a JobManager has answered this client. Before the first answer a client waits for less long.

Before it, a wrong host, port or scheme is as likely as a cluster that restarts. Afterwards the address is right.
"""

from __future__ import annotations

import math
import time

from airflow_flinklike.client.protocol import Response
from airflow_flinklike.client.retrying import is_of_cluster, is_unavailable


class Contact:
    """`first` bounds the seconds until the first answer, of all requests together; None: as after it."""

    def __init__(self, first: float | None) -> None:
        self.is_made = first is None
        self._first = math.inf if first is None else first
        self._begun: float | None = None

    def left(self) -> float:
        """Seconds left for the first answer, infinite once there was one. The first call begins them."""
        if self.is_made:
            return math.inf
        now = time.monotonic()  # noqa: TID251 - a client has no other clock
        self._begun = now if self._begun is None else self._begun
        return max(0.0, self._begun + self._first - now)

    def take(self, response: Response) -> None:
        """An answer makes the contact, also one of a JobManager that does not lead; not one of a proxy before it."""
        self.is_made = self.is_made or not is_unavailable(response) or is_of_cluster(response)

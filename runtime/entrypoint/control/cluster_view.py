"""ClusterView: the cluster's state by REST, for scripts that wait until it is whole again."""

from __future__ import annotations

import json
import select
import ssl
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.aio.clock import SystemClock
from runtime.common.clock import Deadline

_CLOCK = SystemClock()
_POLL = 0.1
_ANSWER_TIMEOUT = 5.0
_GOING_ON = frozenset({"CREATED", "RUNNING", "RESTARTING"})
_ENDED_WELL = frozenset({"FINISHED", "CANCELED"})


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Jobs by state, JobMaster processes that are ready, and slots."""

    jobs: Mapping[str, str]
    job_masters: int
    slots: int

    @property
    def going_on(self) -> frozenset[str]:
        """Jobs that go on under an owner."""
        return frozenset(job_id for job_id, state in self.jobs.items() if state in _GOING_ON)

    @property
    def failed(self) -> frozenset[str]:
        """Jobs that have failed."""
        return frozenset(job_id for job_id, state in self.jobs.items() if state == "FAILED")

    def lacks(self, before: ClusterState) -> str:
        """A sentence about what is missing, compared with `before`; "" when nothing is."""
        away = [one for one in before.going_on if self.jobs.get(one, "FINISHED") not in _GOING_ON | _ENDED_WELL]
        away = [one for one in away if one not in self.failed]
        if away:
            return f"{len(away)} jobs have no owner"
        if self.job_masters < before.job_masters:
            return f"{self.job_masters} of {before.job_masters} JobMaster processes are ready"
        if self.slots < before.slots:
            return f"{self.slots} of {before.slots} slots are there"
        return ""


class ClusterView:
    """Asks any of the JobManagers. `addresses` returns their present addresses: ports may change with a restart."""

    def __init__(
        self, addresses: Callable[[], Sequence[str]], token: str | None, tls: ssl.SSLContext | None = None
    ) -> None:
        """`tls` None: in plain text."""
        self._addresses = addresses
        self._tls = tls
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}

    def state(self) -> ClusterState | None:
        """The present state; None when no JobManager answers."""
        for address in self._addresses():
            try:
                jobs = self._get(address, "/jobs/overview")["jobs"]
                processes = self._get(address, "/jobmasters")["jobmasters"]
                overview = self._get(address, "/overview")
            except (OSError, ValueError):
                continue
            ready = sum(one["state"] == "ready" for one in processes)
            return ClusterState({one["jid"]: one["state"] for one in jobs}, ready, overview["slots-total"])
        return None

    def wait_whole(self, before: ClusterState, timeout: float) -> tuple[ClusterState | None, str]:
        """The state once nothing is missing that was there before, or after `timeout` seconds with what is missing."""
        deadline = Deadline.after(_CLOCK, timeout)
        while True:
            now = self.state()
            missing = "no JobManager answers" if now is None else now.lacks(before)
            if not missing or deadline.has_passed(_CLOCK):
                return now, missing
            select.select([], [], [], _POLL)

    def _get(self, address: str, path: str) -> Any:
        scheme = "http" if self._tls is None else "https"
        request = urllib.request.Request(f"{scheme}://{address}{path}", headers=self._headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=_ANSWER_TIMEOUT, context=self._tls) as answer:  # noqa: S310
            return json.load(answer)

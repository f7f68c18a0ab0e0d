"""Events of the cluster: what has happened to its processes, its leader, its store and the owners of jobs (D-114)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from runtime.common.ids import JobId

OF_THE_CLUSTER = ""
"""Namespace of an event that everybody may see."""


class EventKind(Enum):
    """What has happened. Of one `axis` (of a process, a job) the same again is no event."""

    LEADER_ELECTED = "leader-elected"
    JOBMANAGER_REGISTERED = "jobmanager-registered"
    JOBMANAGER_LOST = "jobmanager-lost"
    JOBMASTER_REQUESTED = "jobmaster-requested"
    JOBMASTER_START_FAILED = "jobmaster-start-failed"
    JOBMASTER_RELEASED = "jobmaster-released"
    JOBMASTER_REGISTERED = "jobmaster-registered"
    JOBMASTER_LOST = "jobmaster-lost"
    JOBMASTER_DRAINING = "jobmaster-draining"
    JOBMASTER_UNDRAINED = "jobmaster-undrained"
    TASKMANAGER_REQUESTED = "taskmanager-requested"
    TASKMANAGER_START_FAILED = "taskmanager-start-failed"
    TASKMANAGER_RELEASED = "taskmanager-released"
    TASKMANAGER_REGISTERED = "taskmanager-registered"
    TASKMANAGER_LOST = "taskmanager-lost"
    TASKMANAGER_DEAD = "taskmanager-dead"
    TASKMANAGER_DRAINING = "taskmanager-draining"
    TASKMANAGER_UNDRAINED = "taskmanager-undrained"
    TASKMANAGER_TROUBLED = "taskmanager-troubled"
    TASKMANAGER_RECOVERED = "taskmanager-recovered"
    STORE_FULL = "store-full"
    STORE_HAS_ROOM = "store-has-room"
    HISTORY_AWAY = "history-away"
    HISTORY_BACK = "history-back"
    JOB_TAKEN_OVER = "job-taken-over"
    JOB_CANCELLED = "job-cancelled"

    @property
    def axis(self) -> str:
        """ "" for kinds of which each one counts."""
        return _AXES.get(self, "")

    @property
    def is_normal(self) -> bool:
        """True for what each process is from its beginning: as the first one about a process it is no event."""
        return self in _NORMAL


_AXES = {
    **dict.fromkeys((EventKind.JOBMANAGER_REGISTERED, EventKind.JOBMANAGER_LOST), "life"),
    **dict.fromkeys((EventKind.JOBMASTER_REGISTERED, EventKind.JOBMASTER_LOST), "life"),
    EventKind.TASKMANAGER_REGISTERED: "life",
    EventKind.TASKMANAGER_LOST: "life",
    EventKind.TASKMANAGER_DEAD: "life",
    **dict.fromkeys((EventKind.JOBMASTER_DRAINING, EventKind.JOBMASTER_UNDRAINED), "drain"),
    **dict.fromkeys((EventKind.TASKMANAGER_DRAINING, EventKind.TASKMANAGER_UNDRAINED), "drain"),
    **dict.fromkeys((EventKind.TASKMANAGER_TROUBLED, EventKind.TASKMANAGER_RECOVERED), "trouble"),
    EventKind.JOB_CANCELLED: "end",
    **dict.fromkeys((EventKind.STORE_FULL, EventKind.STORE_HAS_ROOM), "room"),
    **dict.fromkeys((EventKind.HISTORY_AWAY, EventKind.HISTORY_BACK), "history"),
}
_NORMAL = frozenset(
    {
        EventKind.JOBMASTER_UNDRAINED,
        EventKind.TASKMANAGER_UNDRAINED,
        EventKind.TASKMANAGER_RECOVERED,
        EventKind.STORE_HAS_ROOM,
        EventKind.HISTORY_BACK,
    }
)


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One event. `id` is random and names it in any process; `millis` since 1970, by the clock of the leader.

    `subject`: the process that it is about, by incarnation, or "". `job_id`: the job, or "". `namespace`: who may see
    it (R48). `count`: 0, or how many such events within a minute this one stands for, which are not kept.
    """

    id: str
    millis: int
    kind: EventKind
    message: str
    subject: str = ""
    job_id: str = ""
    namespace: str = OF_THE_CLUSTER
    count: int = 0

    @property
    def about(self) -> str:
        """What another event of its axis would be about too."""
        return self.subject or self.job_id


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events, oldest first. `has_gap`: events behind the asked id may be missing, since it is not kept (any more)."""

    events: Sequence[ClusterEvent]
    has_gap: bool


class ClusterEvents(Protocol):
    """The events of the leader's term."""

    @property
    def generation(self) -> int:
        """Another number after each event."""

    def tell(self, kind: EventKind, message: str, /, *, subject: str = "") -> None:
        """Something has happened to the cluster. Never blocks, never raises."""

    def tell_of_job(
        self, kind: EventKind, message: str, job_id: JobId, namespace: str, /, *, subject: str = ""
    ) -> None:
        """Something has happened to a job, for those who see its namespace (R48)."""

    def page(self, sees: Callable[[str], bool], /, *, after: str, limit: int) -> EventPage:
        """At most `limit` events that one sees: the first ones behind the id `after`, or ("") the newest ones."""


class NoEvents:
    """Implements `ClusterEvents`: nothing is kept."""

    generation = 0

    def tell(self, _kind: EventKind, _message: str, /, *, subject: str = "") -> None:
        """Nothing."""

    def tell_of_job(
        self, _kind: EventKind, _message: str, _job_id: JobId, _namespace: str, /, *, subject: str = ""
    ) -> None:
        """Nothing."""

    def page(self, _sees: Callable[[str], bool], /, *, after: str, limit: int) -> EventPage:
        """None."""
        del after, limit
        return EventPage((), has_gap=False)


NO_EVENTS: ClusterEvents = NoEvents()

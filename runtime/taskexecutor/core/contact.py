"""When this TaskManager was last in contact (R14), which fences it has to obey and confirm. Pure.

Invariants: the contact is the send time of a read of the own prefix that showed the own key, with every fence in that
read obeyed, and it counts only once the guard has accepted it; it never goes back. An etcd that is away changes
nothing: the contact gets older. A fence that cannot be read is obeyed as one for every attempt, never confirmed,
and forbids nothing any more when it can be read, or is deleted (R31).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from runtime.common.ids import JobId

_SPARK_TIME = 4.0
"""Seconds that the end of a killed task's Spark session may take."""


@dataclass(frozen=True, slots=True)
class SeenFence:
    """A fence as a read has shown it."""

    epoch: int
    revision: int
    is_confirmed: bool
    is_readable: bool = True


# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PrefixRead:
    """A linearizable read of the own prefix, sent at `sent_at`, has succeeded."""

    sent_at: float
    is_registered: bool
    fences: Mapping[JobId, SeenFence]


@dataclass(frozen=True, slots=True)
class FenceStopped:
    """Nothing that the fence is for runs here any more (R15)."""

    job_id: JobId
    revision: int


@dataclass(frozen=True, slots=True)
class ConfirmationEnded:
    """The write of a confirmation has succeeded, or failed, or was refused: the next read tells."""

    job_id: JobId
    revision: int


@dataclass(frozen=True, slots=True)
class ContactAccepted:
    """The guard holds the deadline that follows from this contact."""

    contact: float


ContactEvent = PrefixRead | FenceStopped | ConfirmationEnded | ContactAccepted

# --- effects ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopFenced:
    """Stop what the fence is for; ends in FenceStopped."""

    job_id: JobId
    epoch: int
    revision: int
    is_readable: bool = True


@dataclass(frozen=True, slots=True)
class ReopenJob:
    """The job's fence, which could not be read, can be, or is lifted: only what is known of it forbids anything."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class ConfirmFence:
    """Write the confirmation; ends in ConfirmationEnded."""

    job_id: JobId
    revision: int


@dataclass(frozen=True, slots=True)
class OfferContact:
    """Have the guard accept this contact; ends in ContactAccepted, unless a newer one takes its place."""

    contact: float


@dataclass(frozen=True, slots=True)
class StopEverything:
    """The own key is deleted: this incarnation was declared dead."""


ContactEffect = StopFenced | ReopenJob | ConfirmFence | OfferContact | StopEverything


class ContactCore:
    """One per incarnation."""

    def __init__(self, isolation_timeout: float, *, cancellation_timeout: float) -> None:
        self._timeout = isolation_timeout
        # Soft, then by force, and their sessions: it is over before the guard acts, which would end Spark with them.
        self._lead = min(cancellation_timeout + _SPARK_TIME, isolation_timeout / 2)
        self._contact: float | None = None
        self._latest: PrefixRead | None = None
        self._requested: dict[JobId, int] = {}
        self._stopped: dict[JobId, int] = {}
        self._confirming: set[JobId] = set()
        self._unreadable: tuple[JobId, ...] = ()

    @property
    def stop_at(self) -> float | None:
        """When exclusive tasks are to be stopped: some time before the guard does it. None before the first contact."""
        return None if self._contact is None else self._contact + self._timeout - self._lead

    def loss(self, now: float) -> str:
        """Why no exclusive task may run now, "" when it may."""
        contact, stop_at = self._contact, self.stop_at
        if contact is None or stop_at is None:
            return "this TaskManager has not read its keys in etcd yet"
        if now < stop_at:
            return ""
        return (
            f"this TaskManager has not read its keys in etcd for {now - contact:.1f} s, so"
            f" its exclusive tasks may soon run elsewhere (taskmanager.isolation-timeout: {self._timeout:g} s)"
        )

    def handle(self, event: ContactEvent) -> list[ContactEffect]:
        """Apply one event."""
        match event:
            case PrefixRead():
                return self._on_read(event)
            case FenceStopped(job_id, revision):
                self._stopped[job_id] = max(revision, self._stopped.get(job_id, 0))
                return self._after_stop(job_id)
            case ConfirmationEnded(job_id):
                self._confirming.discard(job_id)
                return []
            case ContactAccepted(contact):
                self._contact = max(contact, self._contact or contact)
                return []
            case _:
                assert_never(event)

    def _on_read(self, read: PrefixRead) -> list[ContactEffect]:
        if self._latest is not None and read.sent_at < self._latest.sent_at:
            return []
        self._latest = read
        if not read.is_registered:
            return [StopEverything()]
        effects: list[ContactEffect] = []
        for job_id, fence in read.fences.items():
            if fence.revision > self._requested.get(job_id, 0):
                self._requested[job_id] = fence.revision
                effects.append(StopFenced(job_id, fence.epoch, fence.revision, fence.is_readable))
            else:
                effects += self._confirm(job_id, fence)
        unreadable = tuple(job_id for job_id, fence in read.fences.items() if not fence.is_readable)
        effects += [ReopenJob(job_id) for job_id in self._unreadable if job_id not in unreadable]
        self._unreadable = unreadable
        for lifted in (self._requested.keys() | self._stopped.keys()) - read.fences.keys():
            self._requested.pop(lifted, None)
            self._stopped.pop(lifted, None)
        return effects + self._count()

    def _after_stop(self, job_id: JobId) -> list[ContactEffect]:
        fence = self._latest.fences.get(job_id) if self._latest is not None else None
        if fence is None:
            return []
        return [*self._confirm(job_id, fence), *self._count()]

    def _confirm(self, job_id: JobId, fence: SeenFence) -> list[ContactEffect]:
        if fence.is_confirmed or not self._is_obeyed(job_id, fence) or job_id in self._confirming:
            return []
        if not fence.is_readable:  # R31: a confirmation would replace a record that this release cannot read
            return []
        self._confirming.add(job_id)
        return [ConfirmFence(job_id, fence.revision)]

    def _is_obeyed(self, job_id: JobId, fence: SeenFence) -> bool:
        return self._stopped.get(job_id, 0) >= fence.revision

    def _count(self) -> list[ContactEffect]:
        read = self._latest
        if read is None or not read.is_registered:
            return []
        if all(self._is_obeyed(job_id, fence) for job_id, fence in read.fences.items()):
            return [OfferContact(read.sent_at)]
        return []

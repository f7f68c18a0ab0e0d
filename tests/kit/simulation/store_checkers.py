"""Judges of what is written into the store: by whom it may be replaced, and what a full store has been said to do."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.common.ids import JobId
from runtime.gateways.resource_manager import RequestSlot
from runtime.highavailability.kv.key_value_store import Put, Txn
from runtime.highavailability.record_codec import decode_record
from runtime.highavailability.records import WantedRecord
from tests.kit.simulation.checker import CheckerBase, Reader, conditions_that_held, executed
from tests.kit.simulation.history import (
    Acknowledged,
    Answered,
    Applied,
    Expired,
    Record,
    Refused,
    Sent,
    Submitting,
)


class WritesNameWhatTheyReplace(CheckerBase):
    """R33: a write compares the key that it puts, takes effect once, and never replaces a cancel."""

    rule = "R33"

    sees: tuple[type, ...] = (Applied, Acknowledged)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._effective: set[Txn] = set()
        self._cancelled: set[JobId] = set()

    def see(self, record: Record) -> Iterator[str]:
        """What was put, and what acknowledged."""
        if isinstance(record.what, Acknowledged) and record.what.what == "cancel":
            self._cancelled.add(record.what.job_id)
        if not isinstance(record.what, Applied):
            return
        for txn, succeeded in executed(record.what.txn, record.what.result):
            puts = [op for op in (txn.success if succeeded else txn.failure) if isinstance(op, Put)]
            yield from (
                f"{record.process} puts {put.key}, whatever is there" for put in puts if self._is_blind(txn, put)
            )
            if puts and succeeded and not self._is_repeatable(puts):
                if txn in self._effective:
                    yield f"{record.process} has put {puts[0].key} before, and its repeat takes effect too"
                self._effective.add(txn)
        yield from self._deleted_fences(record.process, record.what)
        for job_id, name, event in self.job_writes(record):
            if name != "wanted" or event.is_delete or job_id not in self._cancelled:
                continue
            if not decode_record(WantedRecord, event.kv.value, key=event.kv.key).wants_cancel:
                yield f"job {job_id}: its cancellation was acknowledged, and another wish takes its place"

    def _deleted_fences(self, process: str, applied: Applied) -> Iterator[str]:
        """Its owner may write it again, and a late repeat would find what it found at first."""
        gone = {event.kv.key for event in applied.events if event.is_delete}
        is_owner = any(condition.key.startswith(self.keys.jobs) for condition in conditions_that_held(applied))
        for key in sorted(gone) if is_owner else ():
            if (
                key.startswith(self.keys.task_managers)
                and "/fences/" in key
                and key.partition("/fences/")[0] not in gone
            ):
                yield f"{process} deletes {key}, which it may write again"

    def _is_blind(self, txn: Txn, put: Put) -> bool:
        compared = {condition.key for condition in txn.conditions}
        if not put.key.startswith(self.keys.root) or put.key in compared:
            return False
        if put.key.startswith(self.keys.task_managers) and put.key.endswith("/guard"):
            return False  # that it was reached replaces everything
        # There is no owner of a job that is not stored.
        return not (put.key.endswith("/owner") and f"{put.key.removesuffix('owner')}graph" in compared)

    def _is_repeatable(self, puts: list[Put]) -> bool:
        """Of a TaskManager: that it is there, and that its guard was reached (R13)."""
        names = [put.key.removeprefix(self.keys.task_managers) for put in puts]
        return all(put.key != name for put, name in zip(puts, names, strict=True)) and all(
            "/" not in name or name.endswith("/guard") for name in names
        )


class RefusedForLackOfSpace(CheckerBase):
    """R32: what was answered 507 is not stored, unless its client sends it again."""

    rule = "R32"

    sees: tuple[type, ...] = (Applied, Refused, Submitting)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._stored: set[JobId] = set()
        self._refused: set[JobId] = set()

    def see(self, record: Record) -> Iterator[str]:
        """Answers against what is stored."""
        for job_id, name, event in self.job_writes(record):
            if name == "graph" and not event.is_delete:
                self._stored.add(job_id)
                if job_id in self._refused:
                    yield f"job {job_id} was answered 507, and is stored after that"
        if isinstance(record.what, Refused):
            self._refused.add(record.what.job_id)
            if record.what.job_id in self._stored:
                yield f"job {record.what.job_id} is answered 507, and is stored"
        elif isinstance(record.what, Submitting):
            self._refused.discard(record.what.job_id)


class SlotsGoToOwners(CheckerBase):
    """R7: no leader asks for a slot for an owner that it has replaced itself."""

    rule = "R7"

    hears: tuple[type, ...] = (RequestSlot,)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._owners: dict[JobId, tuple[str, int]] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Owners, by whom they were written, and what is asked for them."""
        for job_id, name, event in self.job_writes(record):
            if name == "owner" and not event.is_delete:
                self._owners[job_id] = record.process, event.kv.mod_revision
        if isinstance(record.what, Sent) and isinstance(record.what.message, RequestSlot):
            request = record.what.message
            writer, epoch = self._owners.get(request.job_id, ("", 0))
            if writer == record.process and request.epoch < epoch:
                yield (
                    f"{writer} asks for a slot for job {request.job_id} at epoch {request.epoch}, "
                    f"after it has written epoch {epoch}"
                )


class LeadersHoldTheirLease(CheckerBase):
    """R4: no JobManager answers as the leader what it was asked after its lease had run out."""

    rule = "R4"

    sees: tuple[type, ...] = (Applied, Expired, Answered)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._latest: dict[str, str] = {}
        self._lapsed: dict[str, float] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Candidacies, their ends, and answers."""
        if isinstance(record.what, Applied):
            for event in record.what.events:
                if event.kv.key.startswith(self.keys.leaders) and not event.is_delete:
                    self._latest[record.process] = event.kv.key
                    self._lapsed.pop(record.process, None)
        elif isinstance(record.what, Expired):
            for event in record.what.events:
                for process, key in self._latest.items():
                    # Who was declared dead while it lives may hear of it later.
                    if key == event.kv.key and not record.what.is_revoked:
                        self._lapsed[process] = record.at
        elif isinstance(record.what, Answered):
            lapsed = self._lapsed.get(record.process, record.at)
            if lapsed < record.what.asked_at:
                yield f"{record.process} answers as the leader, its lease ran out {record.at - lapsed:.2f} s before"

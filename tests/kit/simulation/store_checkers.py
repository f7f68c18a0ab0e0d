"""Judges of what is written into the store: by whom it may be replaced, and what a full store has been said to do."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.common.ids import JobId
from runtime.highavailability.kv import Put, Txn
from runtime.highavailability.record_codec import decode_record
from runtime.highavailability.records import WantedRecord
from tests.kit.simulation.checker import CheckerBase, Reader, executed
from tests.kit.simulation.history import Acknowledged, Applied, Record, Refused, Submitting


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
        for job_id, name, event in self.job_writes(record):
            if name == "wanted" and not event.is_delete and job_id in self._cancelled:
                if not decode_record(WantedRecord, event.kv.value, key=event.kv.key).wants_cancel:
                    yield f"job {job_id}: its cancellation was acknowledged, and another wish takes its place"

    def _is_blind(self, txn: Txn, put: Put) -> bool:
        compared = {guard.key for guard in txn.guards}
        if not put.key.startswith(self.keys.root) or put.key in compared or self._is_repeatable([put]):
            return False
        # There is no owner of a job that is not stored.
        return not (put.key.endswith("/owner") and f"{put.key.removesuffix('owner')}graph" in compared)

    def _is_repeatable(self, puts: list[Put]) -> bool:
        """That a guard was reached is said by whoever reaches it, in the same words."""
        return all(put.key.startswith(self.keys.task_managers) and put.key.endswith("/guard") for put in puts)


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

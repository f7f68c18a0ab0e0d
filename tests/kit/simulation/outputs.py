"""The judge of commits: what jobs wrote is seen once if they are FINISHED, not at all if they end before the decision.

It knows what user code wrote, which attempts were accepted, who was ordered to move, and every change of a file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import OVERWRITE
from runtime.highavailability.record_codec import decode_record
from runtime.highavailability.records import ResultRecord
from runtime.scheduler.core.job_events import AttemptFinished, OutputsCommitting, SubtasksReset
from tests.kit.simulation.checker import CheckerBase, Reader
from tests.kit.simulation.history import Applied, OutputChanged, Received, Record

OLD_FILE = "old"
"""That an earlier job has left where this one writes."""

_ATTEMPT = ".attempt-"
Order = tuple[int, int]


class _Job:
    """What is known of one job that writes."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.written: dict[str, int] = {}
        self.accepted: dict[tuple[str, int], AttemptFinished] = {}
        self.is_decided = False
        self.status: JobStatus | None = None
        self.orders: dict[str, Order] = {}

    @property
    def expected(self) -> dict[str, str]:
        """The name under which each accepted file is to be seen, and where its task wrote it."""
        names = {}
        for one in self.accepted.values():
            for output in one.outputs:
                hidden = f"{_ATTEMPT}{output.directory.rpartition(_ATTEMPT)[2]}/"
                names.update({name.removeprefix(hidden): name for name in self.written if name.startswith(hidden)})
        return names

    @property
    def mode(self) -> str:
        """That of all its outputs."""
        return next((output.mode for one in self.accepted.values() for output in one.outputs), OVERWRITE)

    def is_there(self, name: str, source: str) -> bool:
        """Whole, under its own name."""
        return self.files.get(name) == self.written[source]

    @property
    def visible(self) -> set[str]:
        """What readers see."""
        return {name for name in self.files if not name.startswith((".", "_"))}


class OutputsAppear(CheckerBase):
    """R26: nothing is seen before the decision. R27: only who has the highest order moves. R28: nothing accepted is
    deleted before its copy is there, and no old file before all new ones are.

    A job that has failed because its decision cannot be read any more keeps what was accepted.
    """

    rule = "R26"
    sees: tuple[type, ...] = (Applied, OutputChanged, Received)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._jobs: dict[JobId, _Job] = defaultdict(_Job)

    def see(self, record: Record) -> Iterator[str]:
        """Events and results, orders, files."""
        match record.what:
            case Received(_, CommitOutputs(job_id=job_id, epoch=epoch, order=order)):
                orders = self._jobs[job_id].orders
                orders[record.process] = max(orders.get(record.process, (0, 0)), (epoch, order))
            case OutputChanged():
                yield from self._changed(record.process, record.what)
            case Applied():
                yield from self._applied(record)
            case _:
                pass

    def _applied(self, record: Record) -> Iterator[str]:
        for job_id, event in self.job_events(record):
            job = self._jobs[job_id]
            if isinstance(event, AttemptFinished) and event.outputs:
                job.accepted[event.attempt_id.vertex_id, event.attempt_id.subtask_index] = event
            elif isinstance(event, SubtasksReset):
                for index in event.subtasks:
                    job.accepted.pop((event.vertex_id, index), None)
            elif isinstance(event, OutputsCommitting):
                job.is_decided = True
        for job_id, name, written in self.job_writes(record):
            if name == "result" and not written.is_delete:
                job = self._jobs[job_id]
                job.status = decode_record(ResultRecord, written.kv.value, key=written.kv.key).status
                if job.status is JobStatus.FINISHED and job.written:
                    yield from self._finished(job_id, job)

    def _finished(self, job_id: JobId, job: _Job) -> Iterator[str]:
        if not job.is_decided:
            yield f"job {job_id} is FINISHED and has never decided to show what it wrote"
        expected = job.expected
        missing = sorted(name for name, source in expected.items() if not job.is_there(name, source))
        if missing:
            yield f"job {job_id} is FINISHED without {missing}"
        others = job.visible - expected.keys() - ({OLD_FILE} if job.mode != OVERWRITE else set())
        if others:
            yield f"job {job_id} is FINISHED, and {sorted(others)} are seen beside what it wrote"
        if job.mode != OVERWRITE and OLD_FILE not in job.files:
            yield f"job {job_id} appends, and what was there is gone"

    def _changed(self, process: str, what: OutputChanged) -> Iterator[str]:
        job = self._jobs[what.job_id]
        if what.by_task:
            job.files[what.name] = job.written[what.name] = what.size or 0
            return
        if not what.name.startswith(_ATTEMPT):
            yield from self._orders(process, what, job)
        if what.size is not None:
            if not job.is_decided and not what.name.startswith("."):
                yield f"{what.name} of job {what.job_id} is seen before it is decided that it may be"
            job.files[what.name] = what.size
            return
        job.files.pop(what.name, None)
        yield from self._deleted(what, job)

    def _orders(self, process: str, what: OutputChanged, job: _Job) -> Iterator[str]:
        """R27. When the job is over, whoever ends it there tidies up."""
        mine, highest = job.orders.get(process), max(job.orders.values(), default=(0, 0))
        is_tidying = what.size is None and what.name.startswith(".") and job.status is not None
        if mine != highest and not is_tidying:
            yield f"R27: {process} changes {what.name} of job {what.job_id} under order {mine}, the last is {highest}"

    def _deleted(self, what: OutputChanged, job: _Job) -> Iterator[str]:
        expected = job.expected
        if what.name == OLD_FILE and not all(job.is_there(*one) for one in expected.items()):
            yield f"R28: the old file of job {what.job_id} goes before all new ones are there"
        shown = [name for name, source in expected.items() if source == what.name]
        may_go = job.status is not None and not job.is_decided
        if shown and not may_go and not job.is_there(shown[0], what.name):
            yield f"R28: {what.name} of job {what.job_id} was accepted and is deleted, and {shown[0]} is not there"

    def finish(self) -> Iterator[str]:
        """Jobs that have ended before it was decided."""
        for job_id, job in self._jobs.items():
            shown = job.visible - {OLD_FILE}
            if job.status is not None and not job.is_decided and shown:
                yield f"job {job_id} is {job.status.name}, and {sorted(shown)} are seen"

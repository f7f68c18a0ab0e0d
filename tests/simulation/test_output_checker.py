"""The judge of commits refuses a history that breaks R26, R27 or R28, and says nothing of the one that does not."""

from __future__ import annotations

import pytest

from runtime.common.states import JobStatus
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import APPEND, OVERWRITE, OutputDirectory, TaskMetrics
from runtime.highavailability.kv.key_value_store import Put
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import EventsRecord, Payload
from runtime.scheduler.core.job_events import AttemptFinished, JobEvent, OutputsCommitting, encode_events
from tests.kit.control_plane.job_master_driver import location
from tests.kit.simulation.checkers import check
from tests.kit.simulation.history import Damaged, OutputChanged, Received
from tests.kit.simulation.outputs import OLD_FILE, OutputsAppear
from tests.kit.simulation.past import JOB, KEYS, VERTEX, Past, attempt, result

ATTEMPT = attempt()
HIDDEN = f".attempt-{ATTEMPT}/part"


class Commit(Past):
    """One job with one sink that writes one file."""

    def __init__(self, mode: str = OVERWRITE) -> None:
        super().__init__()
        self._mode = mode
        self.submit()
        self.add("tm-1", OutputChanged(JOB, OLD_FILE, 3, by_task=True))
        self.add("tm-1", OutputChanged(JOB, HIDDEN, 5, by_task=True))

    def durable(self, number: int, *events: JobEvent) -> None:
        value = encode_record(EventsRecord(Payload("", encode_events(events), "")))
        self.write("master-1", Put(KEYS.event(JOB, number), value), conditions=self.owned)

    def finished(self) -> AttemptFinished:
        output = OutputDirectory("base", f"base/.attempt-{ATTEMPT}", self._mode)
        return AttemptFinished(ATTEMPT, 0, location(), {}, b"", (), (output,), TaskMetrics())

    def decide(self) -> None:
        self.durable(0, self.finished(), OutputsCommitting())

    def order(self, process: str = "tm-1", number: int = 1) -> None:
        self.add(process, Received("master-1", CommitOutputs(JOB, 5, VERTEX, (), number)))

    def change(self, name: str, size: int | None, process: str = "tm-1") -> None:
        self.add(process, OutputChanged(JOB, name, size))

    def end_job(self, status: JobStatus = JobStatus.FINISHED) -> None:
        self.write("master-1", result(status), conditions=self.owned)

    def wrong(self) -> str:
        return "; ".join(one.what for one in check(self.history, KEYS, [OutputsAppear]))


def committed(mode: str = OVERWRITE) -> Commit:
    past = Commit(mode)
    past.decide()
    past.order()
    past.change("part", 5)
    if mode == OVERWRITE:
        past.change(OLD_FILE, None)
    past.change(HIDDEN, None)
    past.change("_SUCCESS", 0)
    return past


@pytest.mark.parametrize("mode", [OVERWRITE, APPEND])
def test_a_good_commit(mode: str) -> None:
    past = committed(mode)
    past.end_job()
    assert past.wrong() == ""


def test_what_is_seen_before_it_is_decided() -> None:
    past = Commit()
    past.durable(0, past.finished())
    past.order()
    past.change("part", 5)
    assert "is seen before it is decided" in past.wrong()


def test_who_moves_under_an_order_that_is_not_the_last_or_none() -> None:
    past = Commit()
    past.decide()
    past.order("tm-1", 1)
    past.order("tm-2", 2)
    past.change("part", 5, "tm-2")
    assert past.wrong() == ""
    past.change("part", 5, "tm-1")
    assert "R27: tm-1 changes part" in past.wrong()
    past = Commit()
    past.decide()
    past.change("part", 5, "tm-3")
    assert "R27: tm-3" in past.wrong()


def test_an_accepted_file_that_goes_before_its_copy_is_whole() -> None:
    past = Commit()
    past.decide()
    past.order()
    past.change("part", 2)
    past.change(HIDDEN, None)
    assert "was accepted and is deleted, and part is not there" in past.wrong()


def test_what_was_decided_and_can_not_be_read_any_more() -> None:
    past = Commit()
    past.decide()
    past.add("etcd", Damaged(KEYS.event(JOB, 0)))
    past.end_job(JobStatus.FAILED)
    past.change(HIDDEN, None)
    assert "was accepted and is deleted" in past.wrong(), "what may have been decided is kept, also unclaimed"
    past = Commit()
    past.decide()
    past.order()
    past.change(f".commit-{JOB}/order", 9)
    past.add("etcd", Damaged(KEYS.event(JOB, 0)))
    past.end_job(JobStatus.FAILED)
    past.change(HIDDEN, None)
    assert "was accepted and is deleted" in past.wrong(), "a mover has claimed it, and a repeat needs it"


def test_an_old_file_that_goes_first() -> None:
    past = Commit()
    past.decide()
    past.order()
    past.change(OLD_FILE, None)
    assert "the old file" in past.wrong()


def test_a_finished_job_without_its_files_or_with_others() -> None:
    past = Commit()
    past.decide()
    past.order()
    past.end_job()
    assert "is FINISHED without ['part']" in past.wrong()
    past = committed()
    past.change(OLD_FILE, 3)
    past.end_job()
    assert "['old'] are seen beside what it wrote" in past.wrong()
    past = committed(APPEND)
    past.change(OLD_FILE, None)
    past.end_job()
    assert "appends, and what was there is gone" in past.wrong()


def test_a_job_that_never_decided() -> None:
    past = Commit()
    past.durable(0, past.finished())
    past.end_job()
    assert "has never decided" in past.wrong()


def test_what_is_seen_of_a_job_that_was_cancelled() -> None:
    past = Commit()
    past.durable(0, past.finished())
    past.order()
    past.change("part", 5)
    past.end_job(JobStatus.CANCELED)
    assert "is CANCELED, and ['part'] are seen" in past.wrong()

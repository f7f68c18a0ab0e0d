"""What a change of leaders must not do: no job is run after its result was written (FLINK-39704), none is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from runtime.common.errors import StaleTokenError
from runtime.common.ids import Incarnation
from runtime.common.states import JobStatus
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import JobRequest, SubmitJobRequest, SubmitOutcome
from runtime.highavailability.kv.key_value_store import Put, Txn, TxnResult
from tests.benchmarks.cluster import job_graph
from tests.kit.control_plane.led_jobs import start_job, until
from tests.kit.control_plane.plane import ControlPlane, Leader, eventually

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def world(*, is_split: bool) -> AsyncIterator[ControlPlane]:
    made = ControlPlane(is_split=is_split)
    made.clean_period = 3600.0
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def split() -> AsyncIterator[ControlPlane]:
    async with world(is_split=True) as made:
        yield made


@pytest_asyncio.fixture
async def standalone() -> AsyncIterator[ControlPlane]:
    async with world(is_split=False) as made:
        yield made


@pytest_asyncio.fixture(params=["standalone", "split"])
async def plane(request: pytest.FixtureRequest) -> AsyncIterator[ControlPlane]:
    """A world in either mode."""
    async with world(is_split=request.param == "split") as made:
        yield made


@dataclass
class SlowStore:
    """Stands in front of a world's store: holds the first write of a key up, or has something happen before it."""

    plane: ControlPlane
    held: list[Txn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._txn = self.plane.kv.txn
        self._held_key = ""
        self._awaited_key = ""

    def hold(self, key: str) -> None:
        """A write of `key` is under way until `let_go`; the process that waits for it may die meanwhile."""
        self._held_key = key

    def before(self, key: str) -> None:
        """What is held arrives just before the next write of `key`."""
        self._awaited_key = key

    async def let_go(self) -> list[bool]:
        """What was held arrives now; did it succeed?"""
        held, self.held = self.held, []
        return [(await self._txn(txn, timeout=5.0)).succeeded for txn in held]

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        """In place of the store's."""
        keys = {op.key for op in txn.success if isinstance(op, Put)}
        if self._held_key in keys:
            self._held_key = ""
            self.held.append(txn)
            await asyncio.get_running_loop().create_future()
        if self._awaited_key in keys:
            self._awaited_key = ""
            assert await self.let_go() == [True]
        return await self._txn(txn, timeout=timeout)


@pytest.fixture
def store(standalone: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> SlowStore:
    made = SlowStore(standalone)
    monkeypatch.setattr(standalone.kv, "txn", made.txn)
    return made


async def is_submitted_already(leader: Leader, job: SubmitJobRequest, status: JobStatus) -> None:
    answer = await leader.dispatcher.submit_job(job)
    assert (answer.outcome, answer.status) == (SubmitOutcome.ALREADY_SUBMITTED, status)


async def test_a_dirty_result_is_an_end_for_every_later_leader(plane: ControlPlane) -> None:
    first, job = await start_job(plane)
    plane.runners.by_job[job.job_id].finish(JobStatus.FAILED)
    await until(first, job.job_id, JobStatus.FAILED)
    await is_submitted_already(first, job, JobStatus.FAILED)
    await plane.depose(first)
    second = await plane.lead()
    await is_submitted_already(second, job, JobStatus.FAILED)
    await plane.depose(second)
    plane.clean_period = 0.02
    third = await plane.lead()
    await is_submitted_already(third, job, JobStatus.FAILED)
    await eventually(lambda: third.dispatcher._registry.finished.get(job.job_id) is not None, "the clean-up")
    await is_submitted_already(third, job, JobStatus.FAILED)
    await plane.depose(third)
    await is_submitted_already(await plane.lead(), job, JobStatus.FAILED)
    assert len(plane.runners.created) == 1


async def test_a_result_that_is_written_while_nobody_leads(split: ControlPlane) -> None:
    first, job = await start_job(split)
    await split.depose(first)
    split.runners.by_job[job.job_id].finish(JobStatus.FAILED)
    await eventually(lambda: split.runners.by_job[job.job_id].summary().status is JobStatus.FAILED)
    second = await split.lead()
    await until(second, job.job_id, JobStatus.FAILED)
    await is_submitted_already(second, job, JobStatus.FAILED)
    assert len(split.runners.created) == 1


@pytest.mark.parametrize("moment", ["before it reads", "before it assigns", "after it has assigned"])
async def test_a_result_on_its_way_while_the_leader_changes(
    standalone: ControlPlane, store: SlowStore, moment: str
) -> None:
    """It arrives, and the job has ended; or it is refused, and no client has ever seen it."""
    first, job = await start_job(standalone)
    store.hold(standalone.keys.result(job.job_id))
    standalone.runners.by_job[job.job_id].finish(JobStatus.FAILED)
    await eventually(lambda: bool(store.held), "the result is on its way")
    summary = first.dispatcher.job_summary(job.job_id)
    assert summary is not None
    assert not summary.status.is_globally_terminal, "not shown before it is durable (R3)"
    await standalone.depose(first)
    if moment == "before it reads":
        assert await store.let_go() == [True]
    elif moment == "before it assigns":
        store.before(standalone.keys.owner(job.job_id))
    second = await standalone.lead()
    if moment == "after it has assigned":
        await until(second, job.job_id, JobStatus.CREATED)
        assert await store.let_go() == [False]
        assert len(standalone.runners.created) == 2
        standalone.runners.by_job[job.job_id].finish()
        await until(second, job.job_id, JobStatus.FINISHED)
        return
    await until(second, job.job_id, JobStatus.FAILED)
    await is_submitted_already(second, job, JobStatus.FAILED)
    assert len(standalone.runners.created) == 1


async def test_an_acknowledged_job_that_nobody_owns_gets_an_owner(split: ControlPlane) -> None:
    first = await split.lead()
    job = split.new_job()
    await first.dispatcher.submit_job(job)
    await split.depose(first)
    second = await split.lead()
    await until(second, job.job_id, JobStatus.INITIALIZING)
    await split.start_job_master()
    await until(second, job.job_id, JobStatus.CREATED)
    assert len(split.runners.created) == 1


async def test_tasks_of_a_job_whose_owner_has_not_spoken_are_not_shown_as_if_none_had_run(split: ControlPlane) -> None:
    async def vertices(leader: Leader) -> int:
        response = await leader.dispatcher.request_job(JobRequest(job.job_id))
        return len(ArchivedExecutionGraph.from_json(response.archived_graph).vertices)

    first = await split.lead()
    job = split.new_job(job_graph("job", "tests.benchmarks.programs:no_op").canonical_json())
    await first.dispatcher.submit_job(job)
    assert await vertices(first) == 1, "nothing of it can run"
    process = await split.start_job_master()
    await until(first, job.job_id, JobStatus.CREATED)
    await split.depose(first)
    await split.kill_job_master(process)
    second = await split.lead()
    await until(second, job.job_id, JobStatus.INITIALIZING)
    assert await vertices(second) == 0, "nobody has told what runs"


async def test_a_leader_that_was_replaced_without_knowing_says_of_no_job_that_it_is_not_known(
    plane: ControlPlane,
) -> None:
    """R4: a wrong proof of death ends the lease of a leader. The successor may have accepted what it does not know."""
    leader = await plane.lead()
    unheard = plane.new_job().job_id
    assert await leader.dispatcher.find_job(unheard) is None, "while it leads, it may say so"
    await plane.supersede(leader)
    target = Incarnation("0" * 32)
    questions: dict[str, Callable[[], Awaitable[object]]] = {
        "one": lambda: leader.dispatcher.find_job(unheard),
        "many": lambda: leader.dispatcher.find_jobs([unheard]),
        "graph": lambda: leader.dispatcher.request_job(JobRequest(unheard)),
        "cancel": lambda: leader.dispatcher.cancel_job(JobRequest(unheard)),
        "promise": lambda: leader.dispatcher.client_heartbeat(unheard, expires_millis=1),
        "move": lambda: leader.dispatcher.move_job(unheard, target),
    }
    if plane.is_split:
        questions["drain"] = lambda: leader.dispatcher.drain_job_master(target, is_draining=True)
    for what, ask in questions.items():
        with pytest.raises(StaleTokenError):
            raise AssertionError((what, await ask()))

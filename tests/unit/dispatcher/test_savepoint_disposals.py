"""R62: who may delete which savepoint, what is in use, and what the next leader makes of what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.aio.clock import LoopClock, SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.errors import ConflictError, FlinklikeError, NotFoundError, StaleTokenError, UnavailableError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core.events import JobSource
from runtime.dispatcher.savepoint_disposals import PATIENCE_MILLIS, SavepointDisposals, Term
from runtime.dispatcher.stored_jobs import empty_archive
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import JobDetailsResponse, JobRequest, JobSummary
from runtime.gateways.operations import OperationState, SavepointDisposal
from runtime.gateways.task_executor import (
    DisposeSavepointRequest,
    SavepointDisposed,
    SavepointFound,
    SavepointRequest,
)
from runtime.highavailability.disposals import IN_PROGRESS_MAX, KEPT_MAX, DisposalStore
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.key_value_store import Delete, Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.taskexecutor.savepoint_disposal import dispose_savepoint, find_savepoint
from tests.kit.checkpoint.query_directories import query_directory, saved
from tests.kit.rest.fakes import FakeDispatcher, FakeTaskExecutor
from tests.kit.rest.streaming_graphs import streaming_graph

pytestmark = pytest.mark.asyncio
KEYS = Keys.of_cluster("test")
JOB, OTHER = JobId("a" * 32), JobId("b" * 32)
ID = "c" * 32


class Jobs(FakeDispatcher):
    """The leading Dispatcher, with jobs that were started from savepoints."""

    def __init__(self) -> None:
        super().__init__()
        self.started: dict[JobId, str] = {}
        self.details: dict[JobId, ArchivedExecutionGraph] = {}
        self.is_silent = True
        self.comes_later: dict[JobId, str] = {}

    def started_from(self) -> Mapping[JobId, str]:
        there = dict(self.started)
        self.started.update(self.comes_later)
        return there

    async def find_job(self, job_id: JobId, /) -> JobSummary | None:
        return self.summaries.get(job_id)

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        if request.job_id not in self.details:
            raise UnavailableError("its owner does not answer") if self.is_silent else NotFoundError("it is not known")
        return JobDetailsResponse(self.details[request.job_id].to_json())


class TaskManager(FakeTaskExecutor):
    """Reaches the directory. `fails`: how it answers instead, once for each; `loses_answers`: after it has obeyed."""

    def __init__(self, *fails: FlinklikeError) -> None:
        super().__init__()
        self.fails = list(fails)
        self.loses_answers = False
        self.disposed = 0

    async def request_savepoint(self, request: SavepointRequest, /) -> SavepointFound:
        if self.fails:
            raise self.fails.pop()
        return find_savepoint(request)

    async def dispose_savepoint(self, request: DisposeSavepointRequest, /) -> SavepointDisposed:
        self.disposed += 1
        answer = dispose_savepoint(request)
        if self.loses_answers:
            raise UnavailableError("the connection broke")
        return answer


class Scene:
    def __init__(self, directory: Path) -> None:
        self.path = saved(directory / "s", query_directory(directory / "query", batches=1), batch_id=0, job_id=JOB)
        self.kv = MemoryKeyValueStore(LoopClock())
        self.terms = 0
        self.jobs = Jobs()
        self.jobs.put(JOB, JobStatus.FINISHED)
        self.jobs.summaries[JOB] = replace(self.jobs.summaries[JOB], submitter="sam", namespace="team-a")
        self.task_managers: dict[str, TaskManager] = {"tm:1": TaskManager()}
        self.is_leading = True

    async def lead(self) -> DisposalStore:
        """A new term, and its store."""
        self.terms += 1
        key = KEYS.leader(1)
        _ = await self.kv.txn(Txn((), (Delete(key),)), timeout=5)
        won = await self.kv.txn(Txn((), (Put(key, b"1"),)), timeout=5)
        self.store = DisposalStore(self.kv, KEYS, LeaderTerm(key, won.revision), SystemEntropy(), timeout=5)
        return self.store

    def leader(self) -> SavepointDisposals:
        store = self.store

        def term() -> Term | None:
            return Term(self.jobs, store, tuple(self.task_managers)) if self.is_leading else None

        return SavepointDisposals(term, lambda address: self.task_managers[address], SystemClock())

    def wish(self, trigger_id: str = ID, *, submitter: str = "", namespace: str = "") -> SavepointDisposal:
        now = SystemClock().epoch_millis()
        return SavepointDisposal(
            trigger_id, str(self.path), OperationState.IN_PROGRESS, now, submitter=submitter, namespace=namespace
        )

    async def dispose(self, submitter: str = "", namespace: str = "") -> SavepointDisposal:
        leader = self.leader()
        await leader.request(self.wish(submitter=submitter, namespace=namespace))
        await leader.activate()
        found = await leader.find(ID)
        assert found is not None
        return found


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    _ = await made.lead()
    return made


@pytest.mark.parametrize(("submitter", "namespace"), [("", ""), ("sam", "team-a"), ("", "team-a")])
async def test_a_savepoint_is_deleted(scene: Scene, submitter: str, namespace: str) -> None:
    ended = await scene.dispose(submitter, namespace)
    assert (ended.state, ended.job_id, ended.cause) == (OperationState.COMPLETED, JOB, "")
    assert not scene.path.exists()


@pytest.mark.parametrize(
    ("submitter", "namespace", "says"),
    [
        ("tom", "team-a", "submitted by somebody else"),
        ("", "team-b", "of a job of another namespace"),
        ("sam", "team-b", "of a job of another namespace"),
    ],
)
async def test_a_savepoint_of_others_stays(scene: Scene, submitter: str, namespace: str, says: str) -> None:
    ended = await scene.dispose(submitter, namespace)
    assert (ended.state, says in ended.cause) == (OperationState.FAILED, True), ended.cause
    assert scene.path.is_dir()


async def test_whose_a_savepoint_of_a_forgotten_job_is_nobody_knows(scene: Scene) -> None:
    del scene.jobs.summaries[JOB]
    assert "does not know any more" in (await scene.dispose("", "team-a")).cause
    assert scene.path.is_dir()


async def test_a_savepoint_that_a_job_still_reads_stays(scene: Scene) -> None:
    """Also one that is named in another way, and when the owner of the job cannot be asked."""
    scene.jobs.started = {OTHER: f"file:///elsewhere/{scene.path.name}"}
    ended = await scene.dispose()
    assert (ended.state, f"in use: job {OTHER}" in ended.cause) == (OperationState.FAILED, True), ended.cause
    assert scene.path.is_dir()


async def test_a_savepoint_that_a_script_may_still_read_stays(scene: Scene) -> None:
    """Which queries it is yet to start nobody knows."""
    scene.jobs.started = {OTHER: str(scene.path)}
    graph = streaming_graph(OTHER)
    vertices = tuple(replace(vertex, stream_uid="") for vertex in graph.vertices)
    scene.jobs.details = {OTHER: replace(graph, vertices=vertices)}
    assert f"in use: job {OTHER}" in (await scene.dispose()).cause
    assert scene.path.is_dir()


async def test_what_there_is_none_of_is_told(scene: Scene) -> None:
    scene.path.rename(scene.path.with_name("moved"))
    ended = await scene.dispose()
    assert (ended.state, "there is no savepoint at" in ended.cause) == (OperationState.FAILED, True)


async def test_any_task_manager_that_reaches_it_deletes_it(scene: Scene, tmp_path: Path) -> None:
    scene.task_managers = {"tm:1": TaskManager(UnavailableError("gone")), "tm:2": TaskManager()}
    assert (await scene.dispose()).state is OperationState.COMPLETED
    assert not scene.path.exists()


async def test_who_leads_no_more_fails_nothing(scene: Scene) -> None:
    scene.task_managers = {"tm:1": TaskManager(StaleTokenError("only a leader calls a TaskManager"))}
    assert (await scene.dispose()).state is OperationState.IN_PROGRESS
    await scene.leader().activate()
    assert not scene.path.exists()


async def test_it_waits_for_a_task_manager_but_not_for_ever(scene: Scene) -> None:
    scene.task_managers.clear()
    assert (await scene.dispose()).state is OperationState.IN_PROGRESS
    (stored,) = await scene.store.all()
    old = replace(stored.disposal, trigger_millis=stored.disposal.trigger_millis - PATIENCE_MILLIS - 1)
    await scene.store.replace(stored, old)
    await scene.leader().activate()
    ended = await scene.leader().find(ID)
    assert ended is not None
    assert (ended.state, "no TaskManager is registered" in ended.cause) == (OperationState.FAILED, True)


async def test_the_next_leader_goes_on(scene: Scene) -> None:
    """What it finds gone was deleted by an order of the leader before, whose answer nobody has."""
    scene.task_managers["tm:1"].loses_answers = True
    assert (await scene.dispose()).state is OperationState.IN_PROGRESS
    assert not scene.path.exists()
    await scene.leader().activate()
    ended = await scene.leader().find(ID)
    assert ended is not None
    assert ended.state is OperationState.COMPLETED


async def test_what_has_gone_is_in_use_by_nobody(scene: Scene) -> None:
    """Its reader, which had all that it needs, has no owner any more when the next leader looks."""
    scene.task_managers["tm:1"].loses_answers = True
    assert (await scene.dispose()).state is OperationState.IN_PROGRESS
    scene.jobs.started = {OTHER: str(scene.path)}
    await scene.leader().activate()
    ended = await scene.leader().find(ID)
    assert ended is not None
    assert (ended.state, scene.path.exists()) == (OperationState.COMPLETED, False)


async def test_nothing_is_deleted_before_it_is_stored_that_it_may_go(scene: Scene) -> None:
    leader = scene.leader()
    await leader.request(scene.wish())
    (stored,) = await scene.store.all()
    other = await scene.store.replace(stored, replace(stored.disposal, below="/elsewhere"))
    with pytest.raises(ConflictError, match="by another leader"):
        await scene.store.replace(stored, replace(stored.disposal, job_id=JOB))
    assert (await scene.store.all()) == [other]
    await leader.activate()
    assert scene.task_managers["tm:1"].disposed == 0


async def test_who_does_not_lead_does_nothing(scene: Scene) -> None:
    leader = scene.leader()
    await leader.request(scene.wish())
    scene.is_leading = False
    await leader.activate()
    with pytest.raises(UnavailableError, match="does not lead"):
        await leader.request(scene.wish())
    with pytest.raises(UnavailableError, match="does not lead"):
        await leader.find(ID)
    assert scene.path.is_dir()


async def test_a_term_that_is_over_stores_nothing(scene: Scene) -> None:
    """Nor deletes anything: the next leader takes jobs that start from the savepoint, and has written nothing yet."""
    leader = scene.leader()
    await leader.request(scene.wish())
    await scene.lead()
    await leader.activate()
    with pytest.raises(StaleTokenError, match="is over"):
        await leader.request(scene.wish("d" * 32))
    (stored,) = await scene.store.all()
    assert (stored.disposal.job_id, scene.path.is_dir()) == ("", True)


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_job_that_nobody_can_tell_of_reads_its_savepoint(scene: Scene, *, is_stored: bool) -> None:
    """It is being stored; or it waits for an owner, and what runs of it is not known."""
    scene.jobs.started = {OTHER: str(scene.path)}
    if is_stored:
        scene.jobs.details[OTHER] = empty_archive(
            JobSource(OTHER, "", "orders", b"", "", 0, ""), scene.jobs.summaries[JOB]
        )
    else:
        scene.jobs.is_silent = False
    ended = await scene.dispose()
    assert (ended.state, f"in use: job {OTHER}" in ended.cause) == (OperationState.FAILED, True), ended.cause
    assert scene.path.is_dir()


async def test_a_job_that_came_while_it_was_stored_keeps_the_savepoint(scene: Scene) -> None:
    scene.jobs.comes_later = {OTHER: str(scene.path)}
    ended = await scene.dispose()
    assert (ended.state, f"in use: job {OTHER}" in ended.cause) == (OperationState.FAILED, True), ended.cause
    assert scene.path.is_dir()


async def test_a_wish_is_stored_once_and_their_number_is_bounded(scene: Scene) -> None:
    leader = scene.leader()
    first = await leader.request(scene.wish())
    assert await leader.request(replace(scene.wish(), path="/other")) == first
    for number in range(IN_PROGRESS_MAX - 1):
        await leader.request(scene.wish(f"{number:032x}"))
    with pytest.raises(ConflictError, match="wait for their end"):
        await leader.request(scene.wish("d" * 32))
    assert await leader.request(scene.wish()) == first


async def test_those_that_have_ended_are_forgotten_one_day(scene: Scene) -> None:
    for number in range(KEPT_MAX + 5):
        stored = replace(scene.wish(f"{number:032x}"), state=OperationState.FAILED, ended_millis=number)
        await scene.store.add(stored)
    left = {one.disposal.ended_millis for one in await scene.store.all()}
    assert left == set(range(5, KEPT_MAX + 5))

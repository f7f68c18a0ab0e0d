"""Application mode without processes: the command line, the id of the job, and what each term does with the job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.scope import Scope
from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.common.ids import JobId, is_hex_id
from runtime.common.states import JobStatus
from runtime.config.loading import load
from runtime.entrypoint.application import (
    ApplicationDispatcherBootstrap,
    ApplicationEnd,
    JobNotBuiltError,
    application_job_id,
    application_problems,
)
from runtime.entrypoint.control.job_command import JobCommand, parse_job_command
from runtime.gateways.dispatcher import Empty, JobRequest, JobSummary, TaskCounts
from tests.kit.control_plane.virtual_time import run_virtual

HERE = Path("/jobs")
JOB = application_job_id("sales")
RUNNING = JobSummary(JOB, "daily", JobStatus.RUNNING, 7, 1, 1000, -1, 1000, TaskCounts(running=1), "")
URL = "http://localhost:8081"


def ended(status: JobStatus) -> JobSummary:
    return replace(RUNNING, status=status, end_millis=3000, last_modification_millis=3000)


# --- the command line -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--job", "sales:pipeline"], JobCommand("sales:pipeline", HERE)),
        (["-j", "etl.py", "--", "-D", "x", "--"], JobCommand("etl.py", HERE, arguments=("-D", "x", "--"))),
        (["--job=etl.py", "-Drest.port=0", "-D", "a=b"], JobCommand("etl.py", HERE, dynamic=("rest.port=0", "a=b"))),
        (
            ["--conf", "spark.x=y", "--streaming", "--job", "etl.py", "--py-files=a.py"],
            JobCommand("etl.py", HERE, options=("--conf", "spark.x=y", "--streaming", "--py-files=a.py")),
        ),
        (["--job", "etl.py", "--directory", "/other"], JobCommand("etl.py", Path("/other"))),
    ],
)
def test_a_command_line_is_read_and_written(words: list[str], command: JobCommand) -> None:
    assert parse_job_command(words, HERE) == command
    assert parse_job_command(command.words(), Path("/elsewhere")) == command


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name one job"),
        (["--job", "a.py", "--job", "b.py"], "name one job"),
        (["--job"], "--job needs a value"),
        (["--job", "a.py", "2026-11-29"], "stand behind --, as in --job script.py -- 2026-11-29"),
        (["--job", "a.py", "-D"], "-D"),
        (["--job", "a.py", "--job-id", "1" * 32], "the id follows from high-availability.cluster-id"),
        (["--job", "a.py", "--address=http://x"], "the cluster is the process that is started"),
        (["--job", "a.py", "-Dhigh-availability.etcd.password=x"], "shows a secret to every user"),
    ],
)
def test_a_wrong_command_line_is_told_with_what_to_do(words: list[str], sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        parse_job_command(words, HERE)


def test_the_id_of_the_job_follows_from_the_cluster() -> None:
    assert is_hex_id(JOB)
    assert application_job_id("sales") == JOB
    assert application_job_id("sales-2") != JOB


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("high-availability.type=none", "jobmanager.rpc.port=0", "resourcemanager.driver=process"), ""),
        (("high-availability.etcd.embedded=true", "high-availability.type=etcd"), "high-availability.cluster-id names"),
        (
            (
                "high-availability.etcd.embedded=true",
                "high-availability.type=etcd",
                "high-availability.cluster-id=sales",
                "jobmanager.jobmaster.single.enable=true",
            ),
            "leave this option out",
        ),
    ],
)
def test_a_configuration_that_fits_no_application_is_told(options: tuple[str, ...], problem: str) -> None:
    problems = list(application_problems(load(None, environment={}, dynamic=options)))
    assert len(problems) == bool(problem)
    assert all(problem in one for one in problems)


# --- the terms --------------------------------------------------------------------------------------------


class Store:
    """What all terms of a test have in common: the job, and the words of the process."""

    def __init__(self, job: JobSummary | None = None) -> None:
        self.job = job
        self.submits = 0
        self.said: list[str] = []

    async def submit(self, job_id: JobId, url: str) -> None:
        assert (job_id, url) == (JOB, URL)
        self.submits += 1
        self.job = RUNNING

    def bootstrap(self) -> ApplicationDispatcherBootstrap:
        return ApplicationDispatcherBootstrap(JOB, self.submit, LoopClock(), self.said.append)


class Term:
    """Implements `ApplicationDispatcher`."""

    def __init__(self, store: Store, *, cleans_after: float = 1.0) -> None:
        self.store = store
        self.cleans_after = cleans_after
        self.refusals = 0
        self._cleaned_at: float | None = None

    async def find_job(self, job_id: JobId, /) -> JobSummary | None:
        assert job_id == JOB
        if self.refusals:
            self.refusals -= 1
            raise UnavailableError
        return self.store.job

    async def wait_for_jobs(self, known: Mapping[JobId, int], /, *, timeout: float) -> frozenset[JobId]:
        assert timeout > 0
        while self.store.job is not None and self.store.job.last_modification_millis == known[JOB]:
            await asyncio.sleep(0.1)
        return frozenset(known)

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        assert request.job_id == JOB
        self.store.job = ended(JobStatus.CANCELED)
        return Empty()

    def is_cleaned(self, job_id: JobId, /) -> bool:
        now = asyncio.get_running_loop().time()
        if self._cleaned_at is None:
            self._cleaned_at = now + self.cleans_after
        return job_id == JOB and now >= self._cleaned_at


async def end_of(bootstrap: ApplicationDispatcherBootstrap, term: Term, *, within: float = 60.0) -> ApplicationEnd:
    async with asyncio.timeout(within), Scope("test") as scope:
        scope.spawn_eternal("term", bootstrap.run(term, URL))
        found = await bootstrap.ended.wait_until(lambda end: end is not None)
        scope.cancel_all()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("status", "code"), [(JobStatus.FINISHED, 0), (JobStatus.CANCELED, 0), (JobStatus.FAILED, 163)]
)
def test_an_unknown_job_is_submitted_once_and_followed(status: JobStatus, code: int) -> None:
    store = Store()
    term = Term(store)
    term.refusals = 3

    async def end() -> ApplicationEnd:
        bootstrap = store.bootstrap()
        async with Scope("test") as scope:
            ending = scope.start("end", end_of(bootstrap, term))
            _ = await bootstrap.begun.wait_until(bool)
            await asyncio.sleep(5)
            store.job = ended(status)
            return await ending

    assert run_virtual(end()).exit_code == code
    assert store.submits == 1
    assert f"Job {JOB} (daily): {URL}/ui/jobs/{JOB}" in store.said
    assert store.said[-1] == f"Job {JOB} {status.value} after 2 s"


def test_a_known_job_is_adopted_and_one_that_has_ended_does_not_run_again() -> None:
    for status, word in ((JobStatus.FAILED, "does not run twice"), (JobStatus.FINISHED, "does not run twice")):
        store = Store(ended(status))
        found = run_virtual(end_of(store.bootstrap(), Term(store)))
        assert (found.status, store.submits) == (status, 0)
        assert word in store.said[0]


def test_a_job_that_the_store_has_lost_is_unknown_and_not_run_again() -> None:
    store = Store()

    async def end() -> ApplicationEnd:
        bootstrap = store.bootstrap()
        async with Scope("first term") as scope:
            scope.spawn_eternal("term", bootstrap.run(Term(store), URL))
            _ = await bootstrap.begun.wait_until(bool)
            scope.cancel_all()
        store.job = None
        return await end_of(bootstrap, Term(store))

    assert run_virtual(end()).exit_code == 165
    assert store.submits == 1
    assert "UNKNOWN" in store.said[-1]


def test_an_archive_that_is_not_written_holds_up_no_end() -> None:
    store = Store(ended(JobStatus.FINISHED))

    async def seconds() -> float:
        begin = asyncio.get_running_loop().time()
        _ = await end_of(store.bootstrap(), Term(store, cleans_after=1e9))
        return asyncio.get_running_loop().time() - begin

    assert 5 < run_virtual(seconds()) < 30


def test_a_cancel_is_for_a_job_of_this_term_only() -> None:
    store = Store()

    async def outcomes() -> list[bool]:
        bootstrap = store.bootstrap()
        answers = [await bootstrap.cancel()]
        async with Scope("test") as scope:
            ending = scope.start("end", end_of(bootstrap, Term(store)))
            _ = await bootstrap.begun.wait_until(bool)
            answers.append(await bootstrap.cancel())
            assert (await ending).status is JobStatus.CANCELED
        return [*answers, await bootstrap.cancel()]

    assert run_virtual(outcomes()) == [False, True, True]


def test_what_is_wrong_with_the_job_ends_the_process() -> None:
    store = Store()

    async def refuse(_job_id: JobId, _url: str) -> None:
        message = "the job was not submitted: NameError"
        raise JobNotBuiltError(message)

    bootstrap = ApplicationDispatcherBootstrap(JOB, refuse, LoopClock(), store.said.append)
    with pytest.raises(ExceptionGroup) as refused:
        run_virtual(end_of(bootstrap, Term(store)))
    assert refused.group_contains(JobNotBuiltError)

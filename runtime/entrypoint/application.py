"""Application mode: the one job of a cluster, followed by the process that leads it.

In each term the bootstrap adopts the job when the store knows its id, and else has it built and submitted; then it
waits for the end. The job is built in a child process, by `flinklike run`: no user code runs in this one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from runtime.aio.watch import Watch
from runtime.common.clock import Clock, Deadline
from runtime.common.durations import duration_words
from runtime.common.errors import ConflictError, PermanentError, RetryableError
from runtime.common.ids import JobId
from runtime.common.printable import printable
from runtime.common.states import JobStatus
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.options import security
from runtime.config.options.high_availability import HA_CLUSTER_ID, HA_TYPE
from runtime.config.options.jobmanager import SINGLE_JOBMASTER
from runtime.entrypoint.control.job_command import JobCommand
from runtime.gateways.dispatcher import Empty, JobRequest, JobSummary

logger = logging.getLogger(__name__)

EXIT_FAILED = 163
"""Flink's 1443, as a shell sees it."""
EXIT_UNKNOWN = 165
"""Flink's 1445: the store does not know the job any more."""
_EXIT_CODES = {JobStatus.FINISHED: 0, JobStatus.CANCELED: 0, JobStatus.FAILED: EXIT_FAILED}

_LOOK_SECONDS = 60.0
_RETRY_SECONDS = 0.5
_CLEANED_SECONDS = 10.0
_CLEANED_LOOK = 0.05
_TOLD_BYTES = 64 * 1024
_LINES_MAX = 20
_PREFIX = "flinklike: "


class JobNotBuiltError(PermanentError):
    """The job's module or script cannot be used, in the words of `flinklike run`."""


class ApplicationDispatcher(Protocol):
    """What is needed of the Dispatcher of a term."""

    async def find_job(self, job_id: JobId, /) -> JobSummary | None:
        """What is known of a job."""

    async def wait_for_jobs(self, known: Mapping[JobId, int], /, *, timeout: float) -> frozenset[JobId]:
        """Returns when there are news, or after `timeout` seconds."""

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        """Make the wish to cancel durable. ConflictError if the job has ended otherwise."""

    def is_cleaned(self, job_id: JobId, /) -> bool:
        """True when nothing is left to do for a job that has ended."""


@dataclass(frozen=True, slots=True)
class ApplicationEnd:
    """How the job has ended; None: the store does not know it any more."""

    status: JobStatus | None

    @property
    def exit_code(self) -> int:
        """That of the process."""
        return EXIT_UNKNOWN if self.status is None else _EXIT_CODES.get(self.status, EXIT_UNKNOWN)


def application_job_id(cluster_id: str) -> JobId:
    """The id of the job of an application: a process that is started again finds its own job."""
    return JobId(hashlib.sha256(f"flinklike-application/{cluster_id}".encode()).hexdigest()[:32])


def application_problems(configuration: Configuration) -> Iterator[str]:
    """Why this configuration is none of an application."""
    if configuration.get(SINGLE_JOBMASTER):
        yield f"{SINGLE_JOBMASTER.key}: the JobMaster of an application is in its process: leave this option out"
    if configuration.get(HA_TYPE) != "none" and configuration.get(HA_CLUSTER_ID) == HA_CLUSTER_ID.default:
        yield (
            f"{HA_CLUSTER_ID.key} names the application, whose job runs once under that name: set it, for instance "
            f"with -D {HA_CLUSTER_ID.key}=daily-sales-2026-11-29"
        )


class JobBuilder:
    """Has `flinklike run` build and submit the job, as a child process."""

    def __init__(
        self, command: JobCommand, configuration: Configuration, layout: Layout, environment: Mapping[str, str]
    ) -> None:
        self._command = command
        self._configuration = configuration
        self._layout = layout
        self._environment = environment

    async def submit(self, job_id: JobId, url: str) -> None:
        """Return when the job is accepted. Raises JobNotBuiltError."""
        process = await asyncio.create_subprocess_exec(
            *self._words(job_id, url),
            cwd=self._command.directory,
            env=self._variables(),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            told = await _told(process.stderr)
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                _ = await process.wait()
        if code:
            raise JobNotBuiltError(_sentence(told, code))
        if told:
            sys.stderr.write(told)
            sys.stderr.flush()

    def _words(self, job_id: JobId, url: str) -> list[str]:
        own = ["--detached", "--job-id", job_id, "--address", url]
        if self._configuration.get(security.SECURITY_AUTHENTICATION) != "none":
            own += ["--token-file", str(self._layout.token_file(self._configuration))]
        target = [self._command.target, *self._command.arguments]
        return [sys.executable, "-P", "-m", "airflow_flinklike.cli", "run", *own, *self._command.options, *target]

    def _variables(self) -> dict[str, str]:
        """With the files of REST's certificates, which options of this process may have named."""
        get = self._configuration.get
        variables = {**self._environment, **self._layout.environment()}
        if get(security.SSL_REST_ENABLED):
            files = {"CA": security.SSL_REST_CA, "CERT": security.SSL_REST_CERT, "KEY": security.SSL_REST_KEY}
            variables |= {f"FLINKLIKE_{name}": get(option) for name, option in files.items()}
        return variables


class ApplicationDispatcherBootstrap:
    """The job of an application.

    `submit` has it built and stored (`JobBuilder`); `say` shows a line to whoever has started the process.
    """

    def __init__(
        self,
        job_id: JobId,
        submit: Callable[[JobId, str], Awaitable[None]],
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._job_id = job_id
        self._submit = submit
        self._clock = clock
        self._say = say
        self.begun: Watch[bool] = Watch(False)  # noqa: FBT003 - a Watch has one argument
        """True when the job is known to the store."""
        self.ended: Watch[ApplicationEnd | None] = Watch(None)
        self.dispatcher: ApplicationDispatcher | None = None
        """That of the present term of this process."""

    async def run(self, dispatcher: ApplicationDispatcher, url: str) -> None:
        """One term of this process. Eternal. Raises JobNotBuiltError."""
        self.dispatcher = dispatcher
        try:
            while self.ended.value is None:
                try:
                    self.ended.set(await self._followed(dispatcher, url))
                except RetryableError as error:
                    logger.info("job %s cannot be followed now: %s", self._job_id, error)
                    await asyncio.sleep(_RETRY_SECONDS)
            await asyncio.get_running_loop().create_future()
        finally:
            self.dispatcher = None

    async def cancel(self) -> bool:
        """Ask for the end of the job; False when there is none to be cancelled by this process."""
        if self.ended.value is not None:
            return True
        if self.dispatcher is None or not self.begun.value:
            return False
        self._say(f"Job {self._job_id} is cancelled: no store keeps it for another start.")
        try:
            _ = await self.dispatcher.cancel_job(JobRequest(self._job_id))
        except ConflictError as error:
            logger.info("job %s ends by itself: %s", self._job_id, error)
        return True

    async def _followed(self, dispatcher: ApplicationDispatcher, url: str) -> ApplicationEnd:
        summary = await self._known(dispatcher, url)
        if summary is not None:
            self.begun.set(True)
            self._say(f"Job {summary.job_id} ({summary.name}): {url}/ui/jobs/{summary.job_id}")
        told: JobStatus | None = None
        while summary is not None:
            if summary.status is not told and not summary.status.is_globally_terminal:
                told = summary.status
                self._say(f"Job {summary.job_id} is {told.value}.")
            if summary.status.is_globally_terminal:
                self._say(_end_line(summary))
                await self._wait_cleaned(dispatcher)
                return ApplicationEnd(summary.status)
            known = {self._job_id: summary.last_modification_millis}
            _ = await dispatcher.wait_for_jobs(known, timeout=_LOOK_SECONDS)
            summary = await dispatcher.find_job(self._job_id)
        self._say(f"Job {self._job_id} is not known to the store any more: how it has ended is UNKNOWN.")
        return ApplicationEnd(None)

    async def _known(self, dispatcher: ApplicationDispatcher, url: str) -> JobSummary | None:
        """The job, which is submitted if nobody has done so; None for one that was known and is not any more."""
        found = await dispatcher.find_job(self._job_id)
        if found is None and not self.begun.value:
            await self._submit(self._job_id, url)
            return await dispatcher.find_job(self._job_id)
        if found is not None and not self.begun.value:
            how = "has ended, and does not run twice" if found.status.is_globally_terminal else "goes on"
            self._say(f"Job {self._job_id} is known: it {how}.")
        return found

    async def _wait_cleaned(self, dispatcher: ApplicationDispatcher) -> None:
        """Its archive and its history are written meanwhile; what takes longer is done by the next start."""
        deadline = Deadline.after(self._clock, _CLEANED_SECONDS)
        while not dispatcher.is_cleaned(self._job_id) and not deadline.has_passed(self._clock):  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(_CLEANED_LOOK)


def _end_line(summary: JobSummary) -> str:
    spent = duration_words(max(0, summary.end_millis - summary.start_millis) / 1000)
    why = f": {summary.failure}" if summary.failure else ""
    return f"Job {summary.job_id} {summary.status.value} after {spent}{why}"


async def _told(stream: asyncio.StreamReader | None) -> str:
    """The end of what a child writes, as it comes."""
    assert stream is not None
    told = b""
    while piece := await stream.read(_TOLD_BYTES):
        told = (told + piece)[-_TOLD_BYTES:]
    return told.decode(errors="replace")


def _sentence(told: str, code: int) -> str:
    lines = [line for line in told.splitlines() if line.strip()][-_LINES_MAX:]
    if not lines:
        return f"the job was not submitted: `flinklike run` ended without a word, exit code {code}"
    return "the job was not submitted: " + printable("\n".join(lines).removeprefix(_PREFIX))

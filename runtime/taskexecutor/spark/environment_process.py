"""ProcessSparkEnvironment: a SparkEnvironment whose JVM and gateway live in a Spark host process of their own.

One `HostProcess` is one life of host and JVM; `restart` builds a new one (pyspark's statics cannot be reset in
place). Whatever ends the host ends its JVM: parent-death signal and end of stdin; `wait_lost` returns only after
both are dead, so that a component that hears of the loss may act on it (R15).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from runtime.aio.watch import Watch
from runtime.common.deletion import delete_tree
from runtime.common.errors import BugError, FlinklikeError, InvalidInputError, NotFoundError, UnavailableError
from runtime.common.spark_environments import jar_paths
from runtime.common.stream_progress import ScriptLook, StreamLook, StreamPosition
from runtime.gateways.process import SparkJvmFigures
from runtime.gateways.spark_work import SparkQuery, SparkWork
from runtime.system.linux import own_bytes
from runtime.taskexecutor.spark.account import SparkAccount
from runtime.taskexecutor.spark.environment import (
    ChangeOutcome,
    ClosedSession,
    JvmChange,
    SparkLoss,
    SparkLostError,
    SparkRefusedError,
)
from runtime.taskexecutor.spark.host_process import HostProcess, SparkStartError, as_it_is
from runtime.taskexecutor.spark.old_logs import remove_old_logs
from runtime.taskexecutor.spark.spark_answers import (
    JVM_FIGURES,
    WorkAsked,
    masked_conf,
    read_conf,
    read_figures,
    read_look,
    read_positions,
    read_progress,
    read_script_look,
    read_work,
)
from runtime.taskexecutor.spark_protocol import pages
from runtime.taskexecutor.spark_protocol.sessions import SlotSession, SparkProgress
from runtime.taskexecutor.spark_protocol.settings import SparkSettings
from runtime.taskexecutor.task_environment import TaskEnvironment

logger = logging.getLogger(__name__)

_JOBS_REMEMBERED_MAX = 10_000
_PROBLEM_LENGTH_MAX = 500
# Beyond the host's own close timeout, which bounds how long tasks may stay active (R15). A host that is only slow, as
# all processes of a crowded machine are, must not cost every Spark task of the TaskManager.
_CLOSE_MARGIN = 25.0


_STACKS_TIMEOUT = 4.0
"""Well below `rpc.timeout`, within which a whole dump is answered."""
_WORK_TIMEOUT = 2.0
"""It is asked once an attempt with Spark ends, and its report waits for the answer."""
_POSITIONS_TIMEOUT = 30.0
"""Spark lists a directory to tell them, which may be far away."""
_SETTLE_MILLIS = 100
_SESSION = TypeAdapter(SlotSession)


async def _nothing_is_left() -> str:
    """Without a guard nothing can be found."""
    return ""


def _read_end(value: Any) -> tuple[bool, str, JvmChange | None]:
    return bool(value["is_quiet"]), str(value["left"]), JvmChange.parse(str(value["change"]))


class ProcessSparkEnvironment:
    """The production SparkEnvironment. `on_launch` hears the process id of each host, before that serves a session;
    `sweep` ends what a dead JVM has started (Python workers, programs), and says what of it does not die (R29).
    `account`: whose host and JVM are; None: this process's user's. `jars`: where jars of jobs lie, by content.
    """

    def __init__(
        self,
        settings: SparkSettings,
        on_launch: Callable[[int], None] = lambda _: None,
        sweep: Callable[[], Awaitable[str]] = _nothing_is_left,
        environment: TaskEnvironment | None = None,
        account: SparkAccount | None = None,
        jars: Path = Path(),
    ) -> None:
        problems = settings.problems()
        if problems:
            message = f"settings of Spark that cannot be used: {'; '.join(problems)}"
            raise InvalidInputError(message, problems)
        self._settings = settings
        self._on_launch = on_launch
        self._sweep = sweep
        self._environment = environment or TaskEnvironment.of_this_process()
        self._account = account
        self._jars = jars
        self._host: HostProcess | None = None
        self._page_turns = asyncio.Semaphore(pages.ASKED_AT_ONCE_MAX)
        self._used_by: OrderedDict[str, None] = OrderedDict()
        self._problem = ""
        self.put_back: Watch[JvmChange | None] = Watch(None)

    @property
    def problem(self) -> str:
        """Why it could not be started again, "" as long as it can."""
        return self._problem

    @property
    def is_ready(self) -> bool:
        """True while sessions can be opened."""
        return self._host is not None and self._host.is_ready and not self._host.is_changed

    @property
    def is_warm(self) -> bool:
        """True once the JVM has been warmed up."""
        return self._host is not None and self._host.is_ready and self._host.is_warm

    @property
    def process_ids(self) -> tuple[int, int]:
        """(host, JVM); 0 where there is none. For figures and tests."""
        return (0, 0) if self._host is None else (self._host.pid, self._host.jvm_pid)

    async def start(self) -> None:
        """Launch host and JVM. Raises SparkStartError."""
        if self._host is not None:
            message = "the Spark environment is started twice"
            raise BugError(message)
        settings = self._settings
        if settings.is_on_demand:
            await asyncio.to_thread(remove_old_logs, settings)
        if self._account is not None:
            settings = await asyncio.to_thread(_prepare_for, self._account, settings, self._jars)
        else:
            settings = replace(settings, spark_conf=jar_paths(settings.spark_conf, str(self._jars)))
        host = HostProcess(settings, self._on_launch, self._sweep, self._environment, self.put_back, self._account)
        self._host = host
        try:
            await host.start()
        except SparkStartError as error:
            await host.kill(SparkLoss("the start has failed"))
            if settings.is_on_demand and host.is_refused:
                raise SparkRefusedError(str(error)) from error
            raise
        except BaseException:
            await host.kill(SparkLoss("the start has failed"))
            raise

    async def open_session(self, slot_index: int, shares: int = 1) -> SlotSession:
        """A session for one slot process."""
        opened: SlotSession = await self._call(
            "open_session", {"slot_index": slot_index, "shares": shares}, _SESSION.validate_python
        )
        return opened

    async def close_session(self, session: SlotSession) -> ClosedSession:
        """End a session; when Spark still shows its tasks after the timeout, or does not answer, the JVM is killed."""
        host = self._host
        if host is None or not host.knows(session):
            return ClosedSession()
        left, change = "", None
        try:
            timeout = self._settings.close_timeout + _CLOSE_MARGIN
            is_quiet, left, change = await host.call(
                "close_session", {"session_id": session.session_id}, timeout, _read_end
            )
            if not is_quiet:
                reason = f"tasks of {session.session_id} stayed active after its end"
                await host.kill(SparkLoss(reason, session.session_id))
            await self._settle(host, session, change)
        except SparkLostError as error:
            # Lost, or unable to close: in both cases it is not known what still runs, so the JVM has to end (R15).
            await host.kill(SparkLoss(f"closing session {session.session_id}: {error}"))
        host.forget(session)
        return ClosedSession(left, change)

    async def _settle(self, host: HostProcess, session: SlotSession, change: JvmChange | None) -> None:
        """R45: a JVM that was changed for all is replaced when no session works in it and it cannot be put back."""
        if change is not None and change.outcome is ChangeOutcome.SPENT:
            reason = "it is replaced, because a task has changed what all jobs share in it, which cannot be put back"
            await host.kill(SparkLoss(reason, session.session_id, is_planned=True))

    async def cancel_session_jobs(self, session: SlotSession) -> None:
        """Cancel what the session runs now."""
        await self._call("cancel_session_jobs", {"session_id": session.session_id})

    def note_use(self, job_id: str) -> None:
        """Remember it, for its end."""
        self._used_by[job_id] = None
        if len(self._used_by) > _JOBS_REMEMBERED_MAX:
            self._used_by.popitem(last=False)

    async def end_job(self, job_id: str) -> None:
        """Drop what the job has outside of its sessions. The end of a job without Spark costs no call."""
        if job_id in self._used_by:
            del self._used_by[job_id]
            if self._host is not None and self._host.is_ready:
                await self._call("end_job", {"job_id": job_id})

    async def progress(self) -> Mapping[str, SparkProgress]:
        """Progress by session id, as old as the host's poll interval at most."""
        found: dict[str, SparkProgress] = await self._call("progress", {}, read_progress)
        return found

    async def figures(self) -> dict[str, int]:
        """What must not grow with the number of jobs (R25), by name, after a garbage collection. For benchmarks."""
        value: dict[str, int] = await self._call("figures", {})
        return value

    async def work(
        self, asked: WorkAsked, stages_max: int, *, has_plans: bool
    ) -> tuple[SparkWork, tuple[SparkQuery, ...]] | None:
        """What Spark has done for an attempt; a JVM that does not say it in time stays (R48)."""
        host = self._host
        if host is None or not host.is_ready:
            return None
        arguments = {
            "tag": asked.session_id,
            "since": asked.since_millis,
            "until": asked.until_millis,
            "settle_millis": _SETTLE_MILLIS if asked.until_millis else 0,
            "has_plans": has_plans,
        }
        try:
            return await host.ask("work", _WORK_TIMEOUT, partial(read_work, stages_max=stages_max), arguments)
        except (SparkLostError, ValueError) as error:
            logger.debug("what Spark has done is not known: %s", error)
            return None

    def _ready_host(self) -> HostProcess:
        if self._host is None or not self._host.is_ready:
            raise SparkLostError("the JVM is not ready" if self._host is None else self._host.absence)
        return self._host

    async def stream_positions(self, session_id: str) -> tuple[StreamPosition, ...]:
        """A JVM that does not tell them in time stays: its supervisor decides about it."""
        host = self._ready_host()
        return await host.ask("positions", _POSITIONS_TIMEOUT, read_positions, {"tag": session_id})

    async def look_at_stream(self, session_id: str, hold: str, *, drains: bool) -> StreamLook:
        """A JVM that does not tell it in time stays: its supervisor decides about it."""
        host = self._ready_host()
        asked = {"tag": session_id, "hold": hold, "drains": drains}
        return await host.ask("stream", _POSITIONS_TIMEOUT, read_look, asked)

    async def look_at_script(self, session_id: str, hold: str) -> ScriptLook:
        """A JVM that does not tell it in time stays: its supervisor decides about it."""
        host = self._ready_host()
        asked = {"tag": session_id, "hold": hold}
        return await host.ask("script", _POSITIONS_TIMEOUT, read_script_look, asked)

    async def jvm_figures(self, key: str) -> SparkJvmFigures | None:
        """Heap, garbage collection and conf; a JVM that does not say them in time stays (R48)."""
        host = self._host
        if host is None:
            return None
        figures, conf = dict.fromkeys(JVM_FIGURES, -1), dict(self._settings.spark_conf)
        try:
            figures = await host.ask("jvm", _WORK_TIMEOUT, read_figures)
            conf = await host.ask("conf", _WORK_TIMEOUT, read_conf)
        except (SparkLostError, ValueError) as error:
            logger.debug("what the JVM takes is not known: %s", error)
        return SparkJvmFigures(key, self.memory_bytes, **figures, conf=masked_conf(conf))

    async def thread_dump(self) -> str:
        """The stacks of the JVM's threads; a JVM that does not say them in time stays (R48)."""
        host = self._host
        if host is None or not host.is_ready:
            return "the JVM is not ready"
        try:
            return await host.ask("threads", _STACKS_TIMEOUT, str)
        except SparkLostError as error:
            return f"the JVM does not say its stacks: {error}"

    async def page(self, target: str, prefix: str) -> tuple[bytes, bytes]:
        """One of Spark's own pages (R58); a JVM that does not make it in time stays (R48)."""
        if not self._settings.has_pages:
            message = "taskmanager.spark.ui is false here, so that nobody sees Spark's own pages"
            raise NotFoundError(message)
        host = self._host
        if host is None or not host.is_ready:
            message = "its JVM is not ready"
            raise UnavailableError(message)
        async with self._page_turns:
            try:
                return await host.ask("page", pages.ASK_SECONDS, pages.read, {"target": target, "prefix": prefix})
            except (SparkLostError, ValueError) as error:
                message = f"its JVM does not make this page: {error!s:.300}"
                raise UnavailableError(message) from error

    async def wait_lost(self) -> SparkLoss:
        """The loss, once host and JVM are dead."""
        if self._host is None:
            return SparkLoss("Spark is not started")
        return await self._host.wait_lost()

    @property
    def memory_bytes(self) -> int:
        """Of the JVM, without its Python workers and the archives that it maps."""
        jvm = self.process_ids[1]
        return own_bytes(jvm) if jvm else 0

    async def end(self, loss: SparkLoss) -> None:
        """Kill host and JVM."""
        if self._host is not None:
            await self._host.kill(loss)

    async def give_up(self, reason: str) -> None:
        """End host and JVM, so that the supervisor starts others. Returns when both are dead."""
        await self.end(SparkLoss(reason, is_planned=True))

    async def restart(self) -> None:
        """Replace host and JVM. Sessions of the old ones are lost."""
        await self.stop()
        try:
            await self.start()
        except FlinklikeError as error:
            self._problem = f"Spark does not start: {error}"[:_PROBLEM_LENGTH_MAX]
            raise
        self._problem = ""

    async def stop(self) -> None:
        """End host and JVM in an orderly way, by force when that takes too long."""
        host, self._host = self._host, None
        if host is not None:
            await host.stop()
        if self._settings.is_on_demand:
            await asyncio.to_thread(delete_tree, self._settings.work_directory)
            if self._account is not None:
                await asyncio.to_thread(self._account.close_logs, self._settings)

    async def _call(self, operation: str, arguments: dict[str, Any], read: Callable[[Any], Any] = as_it_is) -> Any:
        if self._host is None:
            message = f"{operation}: Spark is not started"
            raise SparkLostError(message)
        return await self._host.call(operation, arguments, self._settings.call_timeout, read)


def _prepare_for(account: SparkAccount, settings: SparkSettings, jars: Path) -> SparkSettings:
    """R50: nothing that an earlier JVM's jobs have started or written is there. Raises SparkStartError."""
    alive = account.end_all(threading.Event().wait)
    if alive:
        message = f"starting Spark: processes {alive} of the user {account.name} do not end"
        raise SparkStartError(message)
    try:
        return account.prepare(settings, jars)
    except OSError as error:
        message = f"starting Spark as {account.name}: {error}"
        raise SparkStartError(message) from error

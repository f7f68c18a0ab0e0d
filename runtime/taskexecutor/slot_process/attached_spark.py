"""The slot process's end of Spark: attach to the session made for it, bind it to a job, hand out `spark`.

Order: `preload()` in the template process, before any fork; `attach(session)` in the idle slot process;
`bind(...)` when a task arrives (pure Python, microseconds); the first `.spark`, or the user's own
`SparkSession.builder.getOrCreate()`, activates the binding in the JVM. A task that never touches Spark costs the
JVM nothing. One process attaches once: pyspark's statics cannot be reset.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, MethodType
from typing import TYPE_CHECKING, Any

from runtime.common.errors import BugError, InvalidInputError
from runtime.common.spark_conf import APP_NAME, ARCHIVES, EXECUTOR_ENV, FILES, PY_FILES
from runtime.taskexecutor.slot_process import shared_files
from runtime.taskexecutor.slot_process.causes import SparkUnavailableError
from runtime.taskexecutor.slot_process.static_conf import ConfJudge, StaticConfPolicy
from runtime.taskexecutor.spark_protocol.sessions import SessionRest, SlotSession
from runtime.taskexecutor.worker_protocol import session_marks
from runtime.taskexecutor.worker_protocol.worker_environment import (
    JOB_DIRECTORY_VARIABLE,
    JOB_ID_VARIABLE,
    LOGS_LINK,
    WORKING_DIRECTORY_LINK,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_CHANGED = (
    "another job has changed what all jobs share in the JVM of this TaskManager, and it cannot be put back before the "
    "tasks that use it have ended"
)

WAREHOUSE = "spark.sql.warehouse.dir"

_STOPS_ACTIVE_RUN = "spark.sql.streaming.stopActiveRunOnRestart"
_FILES = {PY_FILES: "addPyFile", FILES: "addFile", ARCHIVES: "addArchive"}


class RefusedConfError(InvalidInputError):
    """The job's conf has a value that Spark does not take."""


@dataclass(frozen=True, slots=True)
class JobBinding:
    """The job that a slot process works for now.

    `own_workers`: the job brings files of its own, so its Python workers cannot be shared; they start in
    `job_directory` with `python_path`. What Spark prints for the attempt goes to files in `log_directory`.
    `on_first_use` is called once, when Spark is first touched. `shares_files`: the JVM is another user, and reads what
    the group of a file may (R50). `name` is that of its application; "" = the JVM's own.
    """

    job_id: str
    description: str
    job_directory: str
    log_directory: str
    python_path: tuple[str, ...] = ()
    own_workers: bool = False
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    static_conf: StaticConfPolicy = StaticConfPolicy.WARN
    on_first_use: Callable[[], None] | None = None
    shares_files: bool = False
    name: str = ""


def _planted(context: SparkContext, name: str) -> Any:
    from py4j.java_gateway import JavaObject

    return JavaObject(name, context._jsc._gateway_client)  # noqa: SLF001 - planted objects have no other way


class AttachedSpark:
    """The one Spark session of this process."""

    def __init__(self, session: SlotSession, spark: SparkSession, context: SparkContext) -> None:
        from runtime.taskexecutor.spark_protocol import gateway

        self.session = session
        self._slot = _planted(context, gateway.PLANTED_SLOT)
        self.script_queries = _planted(context, gateway.PLANTED_SCRIPTS)
        """Those that a script starts (`jvm/ScriptQueries.java`)."""
        self._spark = spark
        self._context = context
        self._binding: JobBinding | None = None
        self._judge: ConfJudge | None = None
        self._is_active = False
        self._has_asked = False
        self._activating = threading.RLock()
        self._plain_environment = dict(context.environment)
        self._tasks_looked_at = 0
        self.warehouse = ""
        """Where tables of the bound job lie, once it has touched Spark."""
        self.threads: tuple[threading.Thread, ...] = ()

    @property
    def context(self) -> SparkContext:
        """The warm context, without activating the job's binding."""
        return self._context

    @property
    def is_used(self) -> bool:
        """True once the bound job has touched Spark."""
        return self._is_active

    @property
    def binding(self) -> JobBinding:
        """The job that is bound. Raises BugError before `bind`."""
        if self._binding is None:
            message = f"slot process of session {self.session.session_id} touches Spark before a job is bound to it"
            raise BugError(message)
        return self._binding

    def bind(self, binding: JobBinding) -> None:
        """Work for this job from now on. No call to the JVM. A process that is used again binds again."""
        self._binding = binding
        self._judge = None
        self._is_active = self._has_asked = False
        self.warehouse = ""
        self._context.environment = dict(self._plain_environment)
        if binding.shares_files:
            shared_files.share_temporary_files()
        if binding.own_workers:
            self.use_own_workers()
        else:
            self._context.environment.pop(JOB_ID_VARIABLE, None)

    @property
    def spark(self) -> SparkSession:
        """The session; the first access of a job applies its conf, description and database."""
        self.activate()
        return self._spark

    def activate(self) -> None:
        """Apply the bound job to the session, once per job. Threads that come meanwhile wait until that is done."""
        with self._activating:
            if not self._is_active:
                self._activate()

    def _activate(self) -> None:
        binding = self.binding
        self._is_active = True
        if binding.on_first_use is not None:
            binding.on_first_use()
        self._link_directories()
        self._context.setJobDescription(binding.description)
        name = binding.name or self.session.conf.get(APP_NAME, binding.job_id)
        warehouse = self._slot.begin(binding.job_id, binding.job_directory, name)
        if not warehouse:
            self._is_active = False
            raise SparkUnavailableError(_CHANGED)
        self.warehouse = warehouse
        self._context._conf.set(WAREHOUSE, warehouse)  # noqa: SLF001 - as below
        self._note_name(name)
        self._apply_conf_of_job(binding.spark_conf)

    def _link_directories(self) -> None:
        """R24: the JVM and the Python workers look the job's directory and logs up here, so it costs no call."""
        if not self.session.directory:
            return
        directory = Path(self.session.directory)
        link, logs = directory / WORKING_DIRECTORY_LINK, directory / LOGS_LINK
        if not link.is_symlink():
            link.symlink_to(self.binding.job_directory)
        logs.unlink(missing_ok=True)  # of an earlier attempt
        logs.symlink_to(self.binding.log_directory)

    def _apply_conf_of_job(self, conf: Mapping[str, str]) -> None:
        """Refuse the job's conf in one sentence: no line of user code has set it, so no traceback would help."""
        from pyspark.errors import PySparkException

        try:
            self._set(self._judged(conf, is_first=False))
        except PySparkException as error:
            message = f"the Spark conf of the job is refused: {str(error).splitlines()[0]}"
            raise RefusedConfError(message) from None

    def apply_conf(self, conf: Mapping[str, str]) -> None:
        """Set what a living session can take, also the name of the application; the rest by the job's static conf
        policy.
        """
        name = conf.get(APP_NAME)
        if name and name != self._context.appName:
            self._slot.rename(name)
            self._note_name(name)
        self._set(self.judge_conf(conf))

    def _note_name(self, name: str) -> None:
        self._context.appName = name
        self._context._conf.set(APP_NAME, name)  # noqa: SLF001 - as below

    def _set(self, conf: Mapping[str, str]) -> None:
        for key, value in conf.items():
            if key in _FILES:
                self._bring(key, value)
            else:
                self._slot.configure(key, value)
            self._context._conf.set(key, value)  # noqa: SLF001 - what `getConf` copies
            if key.startswith(EXECUTOR_ENV):
                self._context.environment[key.removeprefix(EXECUTOR_ENV)] = value

    def _bring(self, key: str, value: str) -> None:
        """Files that code names by conf are the job's, as those that it adds: `session_boundary` has the functions."""
        add = getattr(self._context, _FILES[key])
        for path in filter(None, map(str.strip, value.split(","))):
            add(path)

    def own_part(self, conf: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The entries that a user has added to a SparkConf: a fresh one repeats all with which the JVM was started."""
        warm = self.session.conf
        return {key: value for key, value in conf if warm.get(key) != value}

    def judge_conf(self, conf: Mapping[str, str]) -> dict[str, str]:
        """The part of `conf` of user code that can be set. One warning per other key and job, or StaticConfError; or
        OtherSparkNeededError, for the first conf of a script.
        """
        is_first, self._has_asked = not self._has_asked, True
        return self._judged(conf, is_first=is_first)

    def _judged(self, conf: Mapping[str, str], *, is_first: bool) -> dict[str, str]:
        if self._judge is None:
            self._judge = ConfJudge(self.binding.static_conf, self.session.conf, self.binding.spark_conf)
        self._judge.look_for_pythons(os.environ)
        return self._judge.settable(conf, is_first=is_first)

    def use_own_workers(self) -> None:
        """Give the job Python workers of its own, in its directory (pitfall 1: never through the shared context)."""
        binding = self.binding
        path = dict.fromkeys((*binding.python_path, binding.job_directory))
        environment = self._context.environment
        known = environment.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(part for part in (*known, *path) if part))
        environment[JOB_DIRECTORY_VARIABLE] = binding.job_directory
        environment[JOB_ID_VARIABLE] = binding.job_id

    def add_to_worker_path(self, entry: str) -> None:
        """Let the job's workers import from `entry`, which lies in the job's directory."""
        self.use_own_workers()
        path = self._context.environment["PYTHONPATH"]
        self._context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys((entry, *path.split(os.pathsep))))

    def detach(self) -> None:
        """The meaning of `stop()` here: this session's streams and jobs end, the shared context lives on."""
        if not self._is_active:
            return
        # Not by `streams`: a session that is asked for them makes a manager, and a listener on the bus of all (R25).
        for problem in str(self._slot.stopStreams()).splitlines():
            sys.stderr.write(f"a stream of this task has not stopped: {problem}\n")
        self._slot.cancelJobs("the task has stopped its Spark session")

    def follow_streams(self, session: SparkSession | None = None) -> None:
        """Have the JVM count what the streaming queries do that start from here on in this session, or in another one.

        None of them ends a query of its id that runs, as Spark has it: it is refused (R59).
        """
        followed = session or self.spark
        self._slot.followStreams(followed._jsparkSession)  # noqa: SLF001 - it has no other name
        followed.conf.set(_STOPS_ACTIVE_RUN, "false")

    def committed_batch(self, directory: str) -> int:
        """The last batch that is committed in the directory of a query, -1 for none."""
        return int(self._slot.committedBatch(directory))

    def ended_stream(self, run_id: str, timeout_millis: int) -> tuple[int, int, int]:
        """Batches and rows of a query that has ended, and the number of its last batch, -1 for none."""
        batches, rows, last_batch = map(int, str(self._slot.endedStream(str(run_id), timeout_millis)).split())
        return batches, rows, last_batch

    def after_stream(self) -> tuple[str, str]:
        """What follows on the end of a query: nothing if nobody holds it, else "drain" or "hold", and the hold's id."""
        what, _, hold = str(self._slot.afterStream()).partition(" ")
        return what, hold

    def release_stream(self) -> None:
        """The query that was held is started again."""
        self._slot.releaseStream()

    def left_behind(self) -> str:
        """Processes that functions or scripts of the session have started and that are alive, in words."""
        session = self.session
        tasks = session_marks.tasks_of(session.directory) if session.directory else 0
        if tasks == self._tasks_looked_at:
            return ""  # a look at all processes costs milliseconds, and nothing new can be there
        left = session_marks.in_words(session_marks.left_behind(session.session_id))
        if not left:
            self._tasks_looked_at = tasks
        return left

    def callback_threads(self) -> list[threading.Thread]:
        """Those by which the JVM calls Python (`foreachBatch`, DStreams) and that are in no such call: py4j's own."""
        server = vars(self._context._gateway).get("_callback_server")  # noqa: SLF001 - no public way
        if server is None:
            return []
        frames = sys._current_frames()  # noqa: SLF001 - the only way to see what another thread does
        return [
            thread
            for thread in threading.enumerate()
            if _callback_server_of(thread) is server and not _is_in_user_code(frames.get(thread.ident or 0))
        ]

    def rest(self) -> SessionRest:
        """How the session is after an attempt: one call for all that is asked."""
        return SessionRest(self._slot.rest())


def _callback_server_of(thread: threading.Thread) -> object:
    """The callback server that a thread runs, or serves a connection of; None for any other thread."""
    from py4j.clientserver import ClientServerConnection, PythonServer

    target = getattr(thread, "_target", None)
    runs = target.__self__ if isinstance(target, MethodType) else None
    if isinstance(runs, ClientServerConnection):
        return runs.python_server
    return runs if isinstance(runs, PythonServer) else None


def _is_in_user_code(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "_call_proxy":
        frame = frame.f_back
    return frame is not None

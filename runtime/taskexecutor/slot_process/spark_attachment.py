"""The slot process's tie to the shared Spark JVM: made while idle, or at the first touch; used or not, per attempt."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from runtime.taskexecutor.containment.users import is_open_to_spark, let_spark_append
from runtime.taskexecutor.slot_process.causes import SparkUnavailableError
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_process.static_conf import StaticConfPolicy
from runtime.taskexecutor.slot_protocol.wire import FrameKind, WorkOrder, decode_fields, encode_fields
from runtime.taskexecutor.spark_protocol.sessions import SessionRest, SlotSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runtime.taskexecutor.slot_process.attached_spark import AttachedSpark

NO_SPARK = "this TaskManager runs without Spark (taskmanager.spark.enabled: false)"
# Spark's status store learns of the end of a job some milliseconds after its caller does. Together 0.5 s.
_QUIET_PAUSES = (0.001, 0.001, 0.002, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256)
_WORKER_PAUSES = _QUIET_PAUSES[:8]
_OPENING_PAUSE = 0.001
_OPENING_LOOKS = 60_000
_NOT_OPENED = "the TaskManager has not opened the job's directory to Spark's user within a minute"
_CONNECTION_ERRORS = frozenset({"Py4JNetworkError", "AttachError"})
_SIGNS_OF_A_STOPPED_CONTEXT = ("SparkContext was shut down", "a stopped SparkContext", "SparkContext is shutting down")
_CHAIN_LENGTH_MAX = 20


class SparkAttachment:
    """Attaches this slot process to Spark: to at most one session in the life of the process."""

    def __init__(self, channel: Channel, *, has_spark: bool, is_static_conf_fatal: bool) -> None:
        self._channel = channel
        self._has_spark = has_spark
        self._policy = StaticConfPolicy.FAIL if is_static_conf_fatal else StaticConfPolicy.WARN
        self._attached: AttachedSpark | None = None
        self._attaching = threading.RLock()
        self._problem = ""
        self._refusal = ""
        self.is_unreachable = False
        """True when the JVM has not answered the question what the attempt has left there."""
        self._order: WorkOrder | None = None
        self._doors = _SparkDoors(self) if has_spark else None
        if not has_spark:
            sys.meta_path.insert(0, _SparkRefusal())

    def attach(self, payload: bytes) -> None:
        """Connect to the session that the TaskManager has made for this process, and say how that went."""
        from runtime.taskexecutor.slot_process.attach import attach

        if self._doors is not None:
            self._doors.restore()
        try:
            self._attached = attach(SlotSession(**decode_fields(payload)))
        except Exception as error:  # noqa: BLE001 - whatever it was, the TaskManager replaces this process
            self._problem = "; ".join(f"{type(link).__name__}: {link}" for link in _chain(error))
            self._channel.send(FrameKind.ATTACH_FAILED, encode_fields(reason=self._problem))
            return
        self._channel.send(FrameKind.ATTACHED)

    @property
    def threads(self) -> Sequence[threading.Thread]:
        """Threads of this process's end of Spark.

        They run from its attaching on, which user code may have asked for.
        """
        return self._attached.threads if self._attached is not None else ()

    @property
    def warehouse(self) -> str:
        """Where tables of the attempt lie; "" where it has not used Spark."""
        return self._attached.warehouse if self._attached is not None else ""

    def callback_threads(self) -> Sequence[threading.Thread]:
        """By which the JVM can call Python as long as this process lives, since a task has asked for that."""
        return self._attached.callback_threads() if self._attached is not None else ()

    def start_attempt(self, order: WorkOrder) -> None:
        """Bind the next attempt. No call to the JVM."""
        self._order = order
        self._refusal = ""
        self.is_unreachable = False
        if self._attached is not None:
            self._bind(self._attached, order)

    def _bind(self, attached: AttachedSpark, order: WorkOrder) -> None:
        from runtime.taskexecutor.slot_process.attached_spark import JobBinding

        job_id = order.attempt_id.job_id
        attached.bind(
            JobBinding(
                job_id=job_id,
                description=job_id,
                job_directory=order.job_directory,
                log_directory=order.log_directory,
                python_path=order.python_path,
                own_workers=order.ships_files,
                spark_conf=json.loads(order.spark_conf),
                static_conf=StaticConfPolicy.ENVIRONMENT if order.may_move else self._policy,
                on_first_use=lambda: self._tell_first_use(order),
                shares_files=order.user is not None,
                name=order.job_name,
            )
        )
        if order.ships_files:
            attached.context.environment.update(json.loads(order.environment))

    def _tell_first_use(self, order: WorkOrder) -> None:
        """Returns when the JVM gets to what the job shows to it (R50). Raises SparkUnavailableError."""
        if order.user is not None:
            let_spark_append(order.log_directory)
        self._channel.send(FrameKind.SPARK_USED)
        if order.user is None:
            return
        opened = threading.Event()  # never set: this process has no loop to wait on
        for _ in range(_OPENING_LOOKS):
            if is_open_to_spark(order.user):
                return
            opened.wait(_OPENING_PAUSE)
        raise SparkUnavailableError(_NOT_OPENED)

    def session(self) -> SparkSession:
        """The warm session; waits for one if this process is not attached yet. Raises SparkUnavailableError."""
        return self.ensure().spark

    def ensure(self) -> AttachedSpark:
        """Be attached and bound. Threads that come while one attaches wait for it."""
        with self._attaching:
            if self._attached is None and self._has_spark and not (self._problem or self._refusal):
                self._ask_for_session()
            attached, order = self._attached, self._order
        if attached is None or order is None:
            problem = f"Spark is not available on this TaskManager: {self._problem or self._refusal}"
            raise SparkUnavailableError(problem if self._has_spark else NO_SPARK)
        return attached

    def launch(self) -> SlotSession:
        """How to start the JVM of an application; waits for its room. Raises SparkUnavailableError."""
        payload = self._requested() if self._has_spark else None
        if payload is None:
            raise SparkUnavailableError(self._refusal or NO_SPARK)
        self._channel.send(FrameKind.ATTACHED)
        return SlotSession(**decode_fields(payload))

    def _requested(self) -> bytes | None:
        """A session for this process; None, with the reason in `_refusal`, when there is none."""
        from runtime.taskexecutor.slot_process.attached_spark import RefusedConfError

        self._channel.send(FrameKind.NEED_SPARK)
        frame = self._channel.take(FrameKind.ATTACH, FrameKind.NO_SPARK)
        if frame is not None and frame.kind is FrameKind.ATTACH:
            return frame.payload
        said = decode_fields(frame.payload) if frame else {"reason": "the TaskManager has ended"}
        self._refusal = said["reason"]
        if said.get("is_refused"):
            message = f"Spark does not start with the conf of this job: {self._refusal}"
            raise RefusedConfError(message)
        return None

    def _ask_for_session(self) -> None:
        payload = self._requested()
        if payload is None:
            return
        self.attach(payload)
        if self._attached is not None and self._order is not None:
            self._bind(self._attached, self._order)

    def end_attempt(self) -> bool:
        """Stop what the attempt has left in Spark (R15); False if something may still run."""
        attached = self._attached
        if attached is None or not attached.is_used:
            return True
        try:
            attached.detach()
            quiet = threading.Event()  # never set: this process has no loop to wait on
            for pause in _QUIET_PAUSES:
                if (rest := attached.rest()) is not SessionRest.ACTIVE:
                    return not self._has_left_processes(attached) and rest is SessionRest.QUIET
                quiet.wait(pause)
        except Exception as error:  # noqa: BLE001 - whatever the JVM answers: the TaskManager then ends the session
            self.is_unreachable = _is_connection_error(error)
            sys.stderr.write(f"the Spark session of this attempt cannot be asked for what still runs: {error}\n")
        return False

    @staticmethod
    def _has_left_processes(attached: AttachedSpark) -> bool:
        """R29: what functions or scripts have started ends with the session, before the attempt's end is told."""
        quiet, left = threading.Event(), ""  # as above
        for pause in _WORKER_PAUSES:  # a worker whose task has not read all learns of it by its socket
            left = attached.left_behind()
            if not left:
                break
            quiet.wait(pause)
        if left:
            sys.stderr.write(f"functions or scripts of this attempt have left processes, which are ended: {left}\n")
        return bool(left)

    @property
    def hides_threads(self) -> bool:
        """False: threads that are left, beside those of `threads`, are the user's."""
        return False

    def named(self, error: BaseException) -> BaseException:
        """The error as it is: the TaskManager knows why its JVM is lost."""
        return error

    def is_connection_error(self, error: BaseException) -> bool:
        """True if `error` says that the JVM did not answer."""
        if self._attached is None and not (self._problem or self._refusal):
            return False
        return any(map(_says_that_spark_is_lost, _chain(error)))


def _chain(error: BaseException) -> Sequence[BaseException]:
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and len(links) < _CHAIN_LENGTH_MAX:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


def _is_connection_error(error: BaseException) -> bool:
    return isinstance(error, ConnectionError) or type(error).__name__ in _CONNECTION_ERRORS


def _says_that_spark_is_lost(error: BaseException) -> bool:
    if _is_connection_error(error):
        return True
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - __str__ is user code
        return False
    return any(sign in text for sign in _SIGNS_OF_A_STOPPED_CONTEXT)


def is_data_frame(value: Any) -> bool:
    """True for a Spark DataFrame. Does not import pyspark: without it there is none."""
    sql = sys.modules.get("pyspark.sql")
    return sql is not None and isinstance(value, sql.DataFrame)


class _LazyContext:
    """Stands where pyspark looks for the active context, so that a column may be made before the first session."""

    def __init__(self, attachment: SparkAttachment) -> None:
        self._attachment = attachment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._attachment.ensure().context, name)


class _SparkDoors:
    """Every way in which user code gets at Spark by itself, led through `ensure` while the process is not attached."""

    def __init__(self, attachment: SparkAttachment) -> None:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        self._attachment = attachment
        self._originals: list[tuple[type, str, object]] = []

        def initialize_context(context: SparkContext, *arguments: Any, **options: Any) -> None:
            attached = attachment.ensure()
            # The object exists already, so it becomes a second face of the warm context.
            vars(context).clear()
            context.__dict__ = vars(attached.context)
            SparkContext.__init__(attached.context, *arguments, **options)

        self._replace(SparkContext, "__init__", initialize_context)
        self._replace(SparkContext, "_active_spark_context", _LazyContext(attachment))
        self._replace(SparkContext, "getOrCreate", classmethod(self._through("getOrCreate")))
        self._replace(SparkSession.Builder, "getOrCreate", self._through("getOrCreate"))
        self._replace(SparkSession, "active", classmethod(self._through("active")))
        self._replace(SparkSession, "getActiveSession", classmethod(self._through("getActiveSession")))

    def _through(self, name: str) -> Callable[..., Any]:
        def call(owner: Any, *arguments: Any, **options: Any) -> Any:
            self._attachment.ensure()
            return getattr(owner, name)(*arguments, **options)

        return call

    def _replace(self, owner: type, name: str, value: object) -> None:
        self._originals.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Take all changes back that this object has made in pyspark. Idempotent."""
        for owner, name, original in self._originals:
            setattr(owner, name, original)
        self._originals.clear()


class _SparkRefusal(importlib.abc.MetaPathFinder):
    """Without Spark: user code that asks pyspark for a context gets a sentence, not a JVM of its own."""

    _TARGET = "pyspark.core.context"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find that one module as usual, and change it after it is loaded."""
        if fullname != self._TARGET:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def load(module: ModuleType) -> None:
            execute(module)

            def refuse(*_: object, **__: object) -> None:
                raise SparkUnavailableError(NO_SPARK)

            vars(module)["launch_gateway"] = refuse

        vars(spec.loader)["exec_module"] = load
        return spec

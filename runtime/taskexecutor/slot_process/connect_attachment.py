"""The slot process's tie to a Spark Connect server: a session of its own for one attempt (D-139).

The same face as `SparkAttachment`. Invariants: no JVM is asked for; a process that has used its session runs nothing
more, so that no job and no later attempt sees what another one has left there.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import quote

from runtime.common.errors import InvalidInputError
from runtime.common.spark_conf import is_ignored, is_static
from runtime.taskexecutor.slot_process.attached_spark import RefusedConfError
from runtime.taskexecutor.slot_process.causes import SparkUnavailableError, TaskError
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_process.static_conf import ConfJudge, StaticConfPolicy
from runtime.taskexecutor.slot_protocol.wire import FrameKind, WorkOrder, decode_fields
from runtime.taskexecutor.spark_protocol.sessions import SlotSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql import SparkSession as SqlSession

    from runtime.taskexecutor.slot_process.attached_spark import AttachedSpark

_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
_PRELOADED = ("numpy", "pandas", "pyarrow", "pyspark.sql", "pyspark.sql.functions", "pyspark.sql.types")
_RETRIES, _BACKOFF_MILLIS, _BACKOFF_MILLIS_MAX = 8, 100, 4000
"""Of a request whose server does not answer, 15 s together; Spark's own take more than ten minutes."""
_LOST = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
_REFUSED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
_CHAIN_LENGTH_MAX = 20


def preload() -> None:
    """Import what slots need, but nothing of gRPC: it does not survive a fork. Raises InvalidInputError."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        if importlib.util.find_spec(name) is None:
            message = (
                f"spark.master sc://... needs the Python package {name}: install requirements/connect.txt "
                "(airflow-flinklike[connect]) where TaskManagers run"
            )
            raise InvalidInputError(message)
    for name in _PRELOADED:
        importlib.import_module(name)


class ConnectAttachment:
    """Makes the Connect session at the first touch of Spark."""

    threads: Sequence[threading.Thread] = ()
    warehouse = ""
    is_unreachable = False

    def __init__(self, channel: Channel, *, is_static_conf_fatal: bool) -> None:
        self._channel = channel
        self._policy = StaticConfPolicy.FAIL if is_static_conf_fatal else StaticConfPolicy.WARN
        self._order: WorkOrder | None = None
        self._session: SparkSession | None = None
        self._address = ""
        self._making = threading.RLock()
        os.environ[_CONNECT_MODE] = "1"  # columns are made for Connect, before there is a session too
        self._judge: ConfJudge | None = None

    def attach(self, payload: bytes) -> NoReturn:
        """No session is made ahead."""
        raise AssertionError(payload)

    def start_attempt(self, order: WorkOrder) -> None:
        """Bind the attempt; no call to the server."""
        self._order = order
        _lead_through(self)

    def session(self) -> SparkSession:
        """The session of the attempt. Raises SparkUnavailableError."""
        with self._making:
            if self._session is None:
                self._session = self._made()
            return self._session

    def ensure(self) -> AttachedSpark:
        """Raises TaskError: what asks for this needs the JVM of a driver."""
        self.refuse("streaming queries whose batches are followed")

    def launch(self) -> SlotSession:
        """Raises TaskError."""
        self.refuse("a Java application")

    def refuse(self, what: str) -> NoReturn:
        """Raises TaskError: it is not there with Spark Connect."""
        message = (
            f"{what}: not with Spark Connect (spark.master sc://...), which has no driver JVM in the TaskManager. "
            "Run the job on a TaskManager with spark.master local[*] or spark://host:port (spark_profile of the job)"
        )
        raise TaskError(message)

    def callback_threads(self) -> Sequence[threading.Thread]:
        """There are none."""
        return ()

    def end_attempt(self) -> bool:
        """False if a session was used: the process ends, and the TaskManager ends the session at the server."""
        return self._session is None

    def is_connection_error(self, error: BaseException) -> bool:
        """False: `named` has said it."""
        del error
        return False  # no JVM of this TaskManager is to be asked why

    @property
    def hides_threads(self) -> bool:
        """True once gRPC has made its own, of which nobody can tell those of the user."""
        return self._session is not None

    def named(self, error: BaseException) -> BaseException:
        """An error of user code behind which the server does not answer, or refuses the token, is named so."""
        code = next(filter(None, map(_status_of, _chain(error))), "")
        message = self._unavailable(code, code)
        return SparkUnavailableError(message).with_traceback(error.__traceback__) if message else error

    def apply_conf(self, conf: Iterable[tuple[str, object]]) -> None:
        """Conf that user code gives to a builder: what a session can have; the rest by `script.static-conf`."""
        spark, judge = self.session(), self._judge
        assert judge is not None
        for key, value in judge.settable(dict(conf)).items():
            spark.conf.set(key, value)

    def _made(self) -> SparkSession:
        order = self._order
        if order is None:
            message = "Spark is touched before a job is bound"
            raise SparkUnavailableError(message)
        described = self._requested()
        self._address = described.remote.partition("/;")[0]
        secret = quote(described.secret, safe="")  # Spark takes the address apart at ; = and /, and shows it in errors
        remote = described.remote + (f";token={secret}" if secret else "")
        from pyspark.errors import PySparkException

        spark = _connected(remote)
        self._channel.send(FrameKind.ATTACHED)
        self._channel.send(FrameKind.SPARK_USED)
        conf: dict[str, str] = json.loads(order.spark_conf)
        self._judge = ConfJudge(self._policy, described.conf, conf)
        try:
            for key, value in {**_settable(described.conf), **_settable(conf)}.items():
                spark.conf.set(key, value)
            spark.addTag(f"job-{order.attempt_id.job_id}")
        except PySparkException as error:
            if unavailable := self._unavailable(_status_of(error), _first_line(error)):
                raise SparkUnavailableError(unavailable) from None
            message = f"the Spark conf of the job is refused: {_first_line(error)}"
            raise RefusedConfError(message) from None
        return spark

    def _unavailable(self, code: str, reason: str) -> str:
        """A sentence for a status by which the server is of no use to any job; "" for another one."""
        server = f"the Spark Connect server at {self._address}"
        if code in _REFUSED:
            return f"{server} refuses the token of this TaskManager (taskmanager.spark.secret-file): {code}"
        return f"{server} does not answer: {reason}" if code in _LOST else ""

    def _requested(self) -> SlotSession:
        self._channel.send(FrameKind.NEED_SPARK)
        frame = self._channel.take(FrameKind.ATTACH, FrameKind.NO_SPARK)
        if frame is not None and frame.kind is FrameKind.ATTACH:
            return SlotSession(**decode_fields(frame.payload))
        reason = decode_fields(frame.payload)["reason"] if frame else "the TaskManager has ended"
        message = f"Spark is not available on this TaskManager: {reason}"
        raise SparkUnavailableError(message)


def _connected(remote: str) -> SqlSession:
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    spark = SparkSession.builder.remote(remote).create()
    policy = DefaultPolicy(
        max_retries=_RETRIES,
        initial_backoff=_BACKOFF_MILLIS,
        max_backoff=_BACKOFF_MILLIS_MAX,
        backoff_multiplier=2.0,
    )
    spark.client.set_retry_policies([policy])
    end = SparkSession.stop

    def stop(session: SparkSession) -> None:
        _interrupt(session) if session is spark else end(session)

    setattr(SparkSession, "stop", stop)  # noqa: B010 - mypy knows no other way
    return cast("SqlSession", spark)


def _interrupt(spark: Any) -> None:
    """The meaning of `stop()` here, as with a JVM: what the session runs ends, and the session lives on."""
    from pyspark.errors import PySparkException

    try:
        spark.interruptAll()
    except PySparkException as error:  # as in Spark, where a stop never fails
        sys.stderr.write(f"what this task runs at the Spark Connect server has not ended: {_first_line(error)}\n")


def _settable(conf: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in conf.items() if not is_static(key) and not is_ignored(key)}


def _lead_through(attachment: ConnectAttachment) -> None:
    """Every way in which user code gets at Spark by itself leads to the session of the attempt."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    def refuse(*_: object, **__: object) -> NoReturn:
        attachment.refuse("a SparkContext, and RDDs")

    def get_or_create(builder: Any) -> SparkSession:
        spark = attachment.session()
        attachment.apply_conf(vars(builder).get("_options", {}).items())
        return spark

    def current(_: type) -> SparkSession:
        return attachment.session()

    for name, value in {"__init__": refuse, "getOrCreate": classmethod(refuse)}.items():
        setattr(SparkContext, name, value)
    setattr(SparkSession.Builder, "getOrCreate", get_or_create)  # noqa: B010 - mypy knows no other way
    for name in ("active", "getActiveSession"):
        setattr(SparkSession, name, classmethod(current))


def _chain(error: BaseException) -> Sequence[BaseException]:
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and len(links) < _CHAIN_LENGTH_MAX:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


def _status_of(error: BaseException) -> str:
    """The status of gRPC that an error of Spark's client carries, by name; "" for any other error."""
    code = vars(error).get("_grpc_status_code")
    return str(getattr(code, "name", ""))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:500]

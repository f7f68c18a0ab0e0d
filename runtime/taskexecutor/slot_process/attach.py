"""Attaches a slot process to the session made for it.

`preload()` runs in the template process, before any fork; `attach(session)` in the idle slot process. One process
attaches once: pyspark's statics cannot be reset.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import threading
from typing import TYPE_CHECKING

from runtime.common.errors import InvalidInputError, RetryableError
from runtime.taskexecutor.slot_process import session_boundary
from runtime.taskexecutor.slot_process.attached_spark import AttachedSpark
from runtime.taskexecutor.spark_protocol.sessions import SlotSession

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# What attaching and the first actions would import lazily: 0.5 to 1.4 s in each child when the template has not.
_PRELOADED = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "pyarrow.parquet",
    "dateutil",
    "dateutil.parser",
    "unittest",
    "py4j.clientserver",
    "pyspark",
    "pyspark.accumulators",
    "pyspark.testing",
    "pyspark.sql",
    "pyspark.sql.functions",
    "pyspark.sql.types",
    "pyspark.sql.window",
    "pyspark.sql.avro.functions",
    "pyspark.sql.classic.dataframe",
    "pyspark.sql.classic.column",
    "pyspark.sql.pandas.functions",
    "pyspark.sql.pandas.map_ops",
    "pyspark.sql.pandas.group_ops",
    "pyspark.sql.streaming",
    "pyspark.errors.exceptions.captured",
    "runtime.taskexecutor.spark_protocol.gateway",
    "runtime.taskexecutor.slot_process.warm_conf",
)

_PANDAS_UNSUPPORTED = 3


class AttachError(RetryableError):
    """The session's gateway did not answer: the JVM is dead or the session was closed."""


def preload() -> None:
    """Import everything a slot process may need of Spark. For the template: starts no thread, opens no connection.

    Raises InvalidInputError for a pandas that pyspark does not support.
    """
    # OpenBLAS would start threads at import, which do not survive a fork.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in _PRELOADED:
        importlib.import_module(name)
    version = str(importlib.import_module("pandas").__version__)
    if int(version.split(".", maxsplit=1)[0]) >= _PANDAS_UNSUPPORTED:
        message = f"pandas {version} is installed, pyspark needs pandas<{_PANDAS_UNSUPPORTED}"
        raise InvalidInputError(message)


def attach(session: SlotSession) -> AttachedSpark:
    """Connect to the session's gateway, and bound what user code reaches there (`session_boundary`).

    Once per process. Raises AttachError.
    """
    from py4j.protocol import Py4JError

    try:
        context, spark = _connect(session)
    except (Py4JError, OSError) as error:
        message = f"attaching to session {session.session_id} at port {session.port}"
        raise AttachError(message) from error
    attached = AttachedSpark(session, spark, context)
    attached.threads = _threads_of(context)
    session_boundary.install(attached)
    return attached


def _connect(session: SlotSession) -> tuple[SparkContext, SparkSession]:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from runtime.taskexecutor.slot_process.warm_conf import WarmConf
    from runtime.taskexecutor.spark_protocol.gateway import (
        PLANTED_ACCUMULATOR,
        PLANTED_CONTEXT,
        PLANTED_SESSION,
        connect,
    )

    gateway = connect(session.port, session.secret)
    client = gateway._gateway_client  # noqa: SLF001 - planted objects have no other way
    java_context = JavaObject(PLANTED_CONTEXT, client)
    java_session = JavaObject(PLANTED_SESSION, client)
    conf = WarmConf(java_context.sc().conf(), session.conf)
    context = SparkContext(gateway=gateway, jsc=java_context, conf=conf, environment={})
    context._conf = conf  # noqa: SLF001 - the constructor puts the JVM's own in its place
    context._javaAccumulator = JavaObject(PLANTED_ACCUMULATOR, client)  # noqa: SLF001 - what functions name
    if threading.current_thread() is threading.main_thread():
        # There, and only there, SparkContext installs a handler that cancels the jobs of every slot.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _move_temporary_files(context, session.directory)
    # Pitfall 5: its constructor would make this the default session of the whole JVM, and pin it there for ever.
    SparkSession._should_update_active_session = staticmethod(lambda: False)  # type: ignore[method-assign]  # noqa: SLF001 - no hook
    spark = SparkSession(context, java_session)
    SparkSession._instantiatedSession = spark  # noqa: SLF001 - what the constructor would have set
    SparkSession._activeSession = spark  # noqa: SLF001 - as above
    return context, spark


def _threads_of(context: SparkContext) -> tuple[threading.Thread, ...]:
    """The threads that connecting has started, found by the objects that they serve: user code may start others
    meanwhile.
    """
    served = (
        context._gateway._gateway_client.finalizer_deque,  # type: ignore[union-attr]  # noqa: SLF001 - no public way
        context._accumulatorServer,  # noqa: SLF001 - as above
    )

    def server(thread: threading.Thread) -> object:
        target = getattr(thread, "_target", None)
        return getattr(thread, "deque", getattr(target, "__self__", None))

    return tuple(thread for thread in threading.enumerate() if any(server(thread) is one for one in served))


def _move_temporary_files(context: SparkContext, directory: str) -> None:
    # Pitfall 13: what the context has made is deleted at the JVM's exit only; ours is deleted with the session.
    if not directory:
        return
    made = context._temp_dir  # noqa: SLF001 - no public way
    context._temp_dir = directory  # noqa: SLF001 - as above
    with contextlib.suppress(FileNotFoundError, PermissionError):  # of the JVM's user, whose host sweeps it then
        shutil.rmtree(made)

"""Python processes that Spark starts for one streaming query, beside its daemon: they read for whom they work.

The driver of a Python streaming source, and of `transformWithState`, is a child of the JVM, which names nobody to it.
What it reads first is pickled: a data source that a worker of the session has made, or the session's own processor.
Both are pickled such that they say whose process it is before anything of the user is read (R24, R29). Others that read
them, the workers of the session, know that already. Standard library only, besides pyspark at run time.
"""

from __future__ import annotations

import functools
import importlib
import os
import pickle
from collections.abc import Callable
from typing import Any

from runtime.taskexecutor.python_workers import python_marks
from runtime.taskexecutor.python_workers.worker_daemon import begin_for


class Owned:
    """Is pickled as what is read in the session's name; `content` is pickled already."""

    def __init__(self, session_id: str, link: str, content: bytes) -> None:
        self._arguments = (session_id, link, content)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str, bytes]]:
        return read_owned, self._arguments


def read_owned(session_id: str, link: str, content: bytes) -> Any:
    """What was pickled. This process is the session's from here on."""
    if not python_marks.works_for(session_id):
        if os.getpgid(0) != os.getpid():
            os.setpgid(0, 0)  # a function that signals its group reaches itself, and not the JVM (R23)
        begin_for(session_id, link, os.getcwd())  # noqa: PTH109 - workers import this
    return pickle.loads(content)  # noqa: S301 - of the session itself


def own_data_sources(session_id: str, link: str) -> None:
    """In a worker that plans: the data source that it may make is read by the driver of a stream."""
    from pyspark.sql.datasource import DataSource

    serializer: Any = importlib.import_module("pyspark.worker_util").pickleSer
    plain = serializer.dumps

    def dumps(found: Any) -> bytes:
        return bytes(plain(Owned(session_id, link, plain(found)) if isinstance(found, DataSource) else found))

    serializer.dumps = dumps


@functools.cache
def own_processors(session_id: str, link: str) -> None:
    """In a slot process: so is the processor of a `transformWithState`."""
    from pyspark.serializers import CloudPickleSerializer
    from pyspark.sql.streaming import stateful_processor_util

    serializer: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]  # of pyspark
    known = stateful_processor_util.TransformWithStateInPandasUdfUtils

    class Utils(known):  # type: ignore[misc, valid-type]  # of pyspark, known at run time only
        def __reduce__(self) -> Any:
            plain = object.__new__(known)
            vars(plain).update(vars(self))
            return read_owned, (session_id, link, serializer.dumps(plain))

    stateful_processor_util.TransformWithStateInPandasUdfUtils = Utils  # type: ignore[misc]  # no hook

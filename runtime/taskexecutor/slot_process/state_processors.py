"""Processors of `transformWithState`, which a driver outside of Spark's daemon reads: pickled with their session."""

from __future__ import annotations

import functools
from typing import Any

from runtime.taskexecutor.worker_protocol.owned_pickles import read_owned


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

"""Processors of `transformWithState`, which a driver outside of Spark's daemon reads: pickled with their session."""

from __future__ import annotations

import functools
from typing import Any

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.worker_protocol.owned_pickles import read_owned

_NOT_IN_THIS_SPARK = (
    "transformWithStateInPandas needs a TaskManager with PySpark 4.1 or newer: in Spark 4.0 the process that drives it "
    "cannot be told for which session it works; applyInPandasWithState keeps state there"
)


@functools.cache
def own_processors(session_id: str, link: str) -> None:
    """In a slot process: so is the processor of a `transformWithState`."""
    from pyspark.serializers import CloudPickleSerializer
    from pyspark.sql.streaming import stateful_processor_util

    serializer: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]  # of pyspark
    known: Any = getattr(stateful_processor_util, "TransformWithStateInPandasUdfUtils", None)
    if known is None:
        raise InvalidInputError(_NOT_IN_THIS_SPARK)

    class Utils(known):  # type: ignore[misc]  # of pyspark, known at run time only
        def __reduce__(self) -> Any:
            plain = object.__new__(known)
            vars(plain).update(vars(self))
            return read_owned, (session_id, link, serializer.dumps(plain))

    stateful_processor_util.TransformWithStateInPandasUdfUtils = Utils  # type: ignore[misc]  # no hook

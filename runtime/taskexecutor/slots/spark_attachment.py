"""The slot process's tie to the shared Spark JVM: made while idle, or at the first touch; used or not, per attempt."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from runtime.taskexecutor.slots.channel import Channel
from runtime.taskexecutor.slots.failures import SparkUnavailableError
from runtime.taskexecutor.slots.wire import FrameKind, WorkOrder, decode_fields

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkAttachment:
    """At most one session in the life of a process."""

    def __init__(self, channel: Channel, *, has_spark: bool, is_static_conf_fatal: bool) -> None:
        self._channel = channel
        self._has_spark = has_spark
        self._is_static_conf_fatal = is_static_conf_fatal

    def attach(self, payload: bytes) -> None:
        """Connect to the session that the TaskManager has made for this process."""
        raise NotImplementedError

    def start_attempt(self, order: WorkOrder) -> None:
        """Whose work comes next."""

    def session(self) -> SparkSession:
        """The warm session; waits for one if this process is not attached yet. Raises SparkUnavailableError."""
        if not self._has_spark:
            message = "this TaskManager runs without Spark (taskmanager.spark.enabled: false)"
            raise SparkUnavailableError(message)
        self._channel.send(FrameKind.NEED_SPARK)
        frame = self._channel.take(FrameKind.ATTACH, FrameKind.NO_SPARK)
        reason = "" if frame is None else decode_fields(frame.payload)["reason"]
        message = f"Spark is not available on this TaskManager: {reason}"
        raise SparkUnavailableError(message)

    def offer_to_script(self) -> None:
        """Let `getOrCreate()` and `SparkContext()` of a script find the session."""

    def end_attempt(self) -> bool:
        """Stop what the attempt has left in Spark; False if something still runs."""
        return True

    def is_connection_error(self, error: BaseException) -> bool:
        """True if `error` says that the JVM did not answer."""
        return False


def is_data_frame(value: Any) -> bool:
    """True for a Spark DataFrame. Does not import pyspark: without it there is none."""
    sql = sys.modules.get("pyspark.sql")
    return sql is not None and isinstance(value, sql.DataFrame)

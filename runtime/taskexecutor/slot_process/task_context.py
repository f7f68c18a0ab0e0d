"""TaskContext as user code gets it: the implementation of `runtime.jobgraph.task_context.TaskContext`."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from runtime.common.errors import FlinklikeError
from runtime.gateways.task import ERROR, OUTPUT_MODES, OVERWRITE, OutputDirectory
from runtime.jobgraph import task_accumulators
from runtime.jobgraph.task_accumulators import Counter, Gauge, Histogram
from runtime.jobgraph.task_credentials import Credentials, task_credentials
from runtime.jobgraph.task_secrets import enter_task
from runtime.taskexecutor.containment.users import STORAGE_SCHEMES, is_of_other_hosts
from runtime.taskexecutor.slot_process.attempt_scope import USER_LOGGER
from runtime.taskexecutor.slot_process.causes import MisuseError, TaskError
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_process.live_accumulators import LiveAccumulators
from runtime.taskexecutor.slot_process.split_reader import SplitReader
from runtime.taskexecutor.slot_protocol.wire import (
    OUTPUTS_LENGTH_MAX,
    TEXT_LENGTH_MAX,
    FrameKind,
    WorkOrder,
    encode_fields,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROGRESS_INTERVAL = 0.1
_MOVED_BY_ROOT = (
    "ctx.output_path({!r}): where slots have users of their own (taskmanager.slots.uids) no local directory can be "
    "committed to, because root would move a task's files: use a URL of storage ({}), or write without "
    "ctx.output_path()"
)


class ProgressReporter:
    """Sends the latest progress, at most every 100 ms; the last one of a burst is sent late rather than never."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._last_sent = 0.0
        self._waiting: tuple[float, str] | None = None
        self._timer: threading.Timer | None = None

    def report(self, fraction: float, text: str) -> None:
        """Called by user code, as often as it likes."""
        with self._lock:
            self._waiting = (fraction, text)
            if self._timer is not None:
                return
            delay = self._last_sent + _PROGRESS_INTERVAL - time.monotonic()  # noqa: TID251 - a slot process has no loop
            if delay <= 0:
                self._send()
                return
            self._timer = threading.Timer(delay, self._flush_late)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """End the timer; what waits is not worth a message any more."""
        with self._lock:
            timer, self._timer, self._waiting = self._timer, None, None
        if timer is not None:
            timer.cancel()
            timer.join()

    def _flush_late(self) -> None:
        with self._lock:
            self._timer = None
            self._send()

    def _send(self) -> None:
        if self._waiting is None:
            return
        fraction, text = self._waiting
        self._waiting = None
        self._last_sent = time.monotonic()  # noqa: TID251 - a slot process has no loop
        self._channel.send(FrameKind.PROGRESS, encode_fields(fraction=fraction, text=text))


class AttemptState:
    """The state that the contexts of one attempt share."""

    def __init__(self, order: WorkOrder, channel: Channel, session: Callable[[], SparkSession]) -> None:
        self.order = order
        self.channel = channel
        self.session = session
        self.progress = ProgressReporter(channel)
        self.live = LiveAccumulators(channel)
        self.accumulators = task_accumulators.enter_task(self.live.accumulators)
        self.params: Mapping[str, Any] = MappingProxyType(json.loads(order.params or b"{}"))
        self.secrets = enter_task(order.secrets)
        self.splits: tuple[Any, ...] = tuple(json.loads(order.splits or b"[]"))
        self.reader: SplitReader | None = None
        """Of a source that takes its splits on demand."""
        self.outputs: dict[str, OutputDirectory] = {}


class SlotTaskContext:
    """One operator's view of its attempt."""

    def __init__(self, state: AttemptState, operator_name: str) -> None:
        self._state = state
        self._operator_name = operator_name

    @property
    def spark(self) -> SparkSession:
        """The warm session of this slot, attached at the first touch."""
        return self._state.session()

    @property
    def job_id(self) -> str:
        """The job's id, 32 hex digits."""
        return self._state.order.attempt_id.job_id

    @property
    def job_name(self) -> str:
        """The job's name."""
        return self._state.order.job_name

    @property
    def vertex_name(self) -> str:
        """Name of the vertex, that is of the whole chain."""
        return self._state.order.vertex_name

    @property
    def operator_name(self) -> str:
        """Name of this operator."""
        return self._operator_name

    @property
    def subtask_index(self) -> int:
        """Which of the `parallelism` subtasks this is, from 0."""
        return self._state.order.attempt_id.subtask_index

    @property
    def parallelism(self) -> int:
        """How many subtasks the vertex has."""
        return self._state.order.parallelism

    @property
    def attempt_number(self) -> int:
        """0 for the first attempt of this subtask."""
        return self._state.order.ordinal

    @property
    def splits(self) -> Sequence[Any]:
        """This subtask's share of the vertex's splits."""
        if self._state.reader is not None:
            message = f"{self._state.order.vertex_name!r} takes its splits on demand: read ctx.next_splits()"
            raise MisuseError(message)
        return self._state.splits

    def next_splits(self) -> Iterator[Any]:
        """Splits on demand, until none is left."""
        if self._state.reader is None:
            message = "ctx.next_splits() is for a source with splits_on_demand=True: here the share is ctx.splits"
            raise MisuseError(message)
        return self._state.reader.read(self._operator_name)

    @property
    def params(self) -> Mapping[str, Any]:
        """The job's parameters."""
        return self._state.params

    @property
    def secrets(self) -> Mapping[str, str]:
        """Secrets by name."""
        return self._state.secrets

    def credentials(self, name: str) -> Credentials:
        """The newest credentials, from the TaskManager's file."""
        return task_credentials(name)

    @property
    def logger(self) -> logging.Logger:
        """Logs into the attempt's `log` file."""
        return logging.getLogger(f"{USER_LOGGER}.{self._operator_name}")

    @property
    def cancelled(self) -> bool:
        """True from the soft step of a cancel on."""
        return self._state.channel.is_cancelled

    def report_progress(self, fraction: float, text: str = "") -> None:
        """Show progress between 0 and 1, with a few words."""
        bounded = min(max(float(fraction), 0.0), 1.0)
        self._state.progress.report(bounded if bounded == bounded else 0.0, str(text)[:TEXT_LENGTH_MAX])  # noqa: PLR0124 - NaN

    def counter(self, name: str) -> Counter:
        """A sum of this attempt."""
        return self._state.accumulators.counter(name)

    def gauge(self, name: str) -> Gauge:
        """A value of this attempt."""
        return self._state.accumulators.gauge(name)

    def histogram(self, name: str) -> Histogram:
        """Measured values of this attempt."""
        return self._state.accumulators.histogram(name)

    def output_path(self, base: str, mode: str = OVERWRITE) -> str:
        """The attempt's hidden directory below `base`. It does not exist yet: Spark wants to make it itself."""
        base = _absolute(base)
        if mode not in OUTPUT_MODES:
            message = f"ctx.output_path({base!r}, mode={mode!r}): mode is one of {', '.join(map(repr, OUTPUT_MODES))}"
            raise TaskError(message)
        known = self._state.outputs.get(base)
        if known is None:
            _check_scheme(base)
            if self._state.order.user is not None and not is_of_other_hosts(base):
                raise TaskError(_MOVED_BY_ROOT.format(base, ", ".join(sorted(STORAGE_SCHEMES))))
            _check_directory(base)
            if mode == ERROR:
                _check_empty(base)
            known = OutputDirectory(base, f"{base}/.attempt-{self._state.order.attempt_id}", mode)
            _check_room([*self._state.outputs.values(), known])
            self._state.outputs[base] = known
            # At once: should this process be killed, the TaskManager knows what to delete.
            self._state.channel.send(FrameKind.OUTPUT, encode_fields(base=base, directory=known.directory, mode=mode))
        elif known.mode != mode:
            message = f"ctx.output_path({base!r}, mode={mode!r}): this task writes there with mode={known.mode!r}"
            raise TaskError(message)
        return known.directory


def _absolute(base: str) -> str:
    base = str(base).rstrip("/")
    if not base or base.endswith(":"):
        message = "ctx.output_path() needs the directory below which the sink writes, and not the root of all files"
        raise TaskError(message)
    if "://" in base or base.startswith("file:"):
        return base
    if not os.path.isabs(base):  # noqa: PTH117 - a string stays a string
        message = (
            f"ctx.output_path({base!r}): a relative base lies in the job's working directory, which ends with the job: "
            "name an absolute directory, or a URL"
        )
        raise TaskError(message)
    return os.path.abspath(base)  # noqa: PTH100 - as above


def _check_room(outputs: Sequence[OutputDirectory]) -> None:
    if sum(len(one.base) + len(one.directory) for one in outputs) > OUTPUTS_LENGTH_MAX:
        message = (
            f"ctx.output_path(): a task has asked for {len(outputs)} bases, whose names take more than "
            f"{OUTPUTS_LENGTH_MAX} characters: write partitions below one base instead"
        )
        raise TaskError(message)


def _check_directory(base: str) -> None:
    from runtime.taskexecutor.storage.directory_tree import local_path

    local = local_path(base)
    if local is not None and os.path.isfile(local):  # noqa: PTH113 - a string stays a string
        message = (
            f"ctx.output_path({base!r}): that is a file, and a base is a directory: delete the file, or name another"
            " directory"
        )
        raise TaskError(message)
    if local is not None and os.path.islink(local) and not os.path.exists(local):  # noqa: PTH110, PTH114 - as above
        message = (
            f"ctx.output_path({base!r}): that is a link to {os.readlink(local)!r}, which leads to nothing: create"  # noqa: PTH115 - as above
            " the directory that it names, or delete the link"
        )
        raise TaskError(message)


def _check_empty(base: str) -> None:
    """mode="error": said before anything is written, and once more when it is committed."""
    from runtime.taskexecutor.storage.core.output_plan import is_visible
    from runtime.taskexecutor.storage.output_files import output_files

    try:
        found = [name for name in output_files(base).present().files if is_visible(name)]
    except (OSError, FlinklikeError) as error:
        message = f"ctx.output_path({base!r}, mode='error'): what is there cannot be listed: {error}"
        raise TaskError(message) from error
    if found:
        message = f"ctx.output_path({base!r}, mode='error'): it exists already, and holds {min(found)}"
        raise TaskError(message)


def _check_scheme(base: str) -> None:
    """Refuse, before any file is written, a base that fsspec cannot reach: the TaskManager moves files with it."""
    scheme, separator, _ = base.partition("://")
    if not separator:
        return
    import fsspec

    try:
        fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        message = f"ctx.output_path({base!r}): the TaskManager cannot move files there: {error}"
        raise TaskError(message) from error

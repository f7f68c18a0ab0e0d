"""Failures in words: what an exception or the end of a process means for the person whose task it was."""

from __future__ import annotations

import os
import signal
import traceback
from dataclasses import replace

from runtime.common.errors import InvalidInputError
from runtime.common.ids import PartitionId
from runtime.gateways.task import FailureInfo, Fault
from runtime.taskexecutor.containment.memory import format_bytes
from runtime.taskexecutor.slot_protocol import causes
from runtime.taskexecutor.slot_protocol.cause_sentence import cause_in_words, with_place
from runtime.taskexecutor.slot_protocol.causes import RESOURCE, SYSTEM, USER
from runtime.taskexecutor.spark.environment import SparkLoss

MESSAGE_LENGTH_MAX = 8 * 1024
STACK_LENGTH_MAX = 64 * 1024
CLASS_LENGTH_MAX = 512

_CLASS_OF_EXIT = "SlotProcessExitError"
LOST_PARTITIONS = "PartitionUnavailableError"
LOST_SPARK = "SparkLostError"
ENDED_SPARK = "SparkEndedError"
LOST_TEMPLATE = "TemplateProcessLostError"


_CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSYS, signal.SIGTRAP}
)


_FROM_OUTSIDE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""What service managers and people send."""


def of_exception(error: BaseException, *, timestamp_millis: int) -> FailureInfo:
    """A failure as it happened in the slot process, with the user's part of the stack."""
    chain = causes.java_chain(error)
    verdict = causes.verdict_of(error, chain)
    message = cause_in_words(_message_of(error), chain)
    return FailureInfo(
        class_name=_class_name(error),
        message=_shorten(message if chain else with_place(message, error), MESSAGE_LENGTH_MAX),
        stack_trace=_shorten(_stack_of(error), STACK_LENGTH_MAX),
        kind=verdict.kind,
        is_recoverable=verdict.is_recoverable,
        timestamp_millis=timestamp_millis,
        fault=verdict.fault,
        is_restart_vain=verdict.is_restart_vain,
    )


def _class_name(error: BaseException) -> str:
    cls = type(error)
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    return _shorten(name, CLASS_LENGTH_MAX)  # R52: user code makes classes, too


def _message_of(error: BaseException) -> str:
    try:
        text = "\n".join([str(error), *map(str, getattr(error, "__notes__", ()))])
    except Exception as broken:  # noqa: BLE001 - __str__ is user code
        text = f"<{type(error).__name__} whose text cannot be made: {type(broken).__name__}>"
    if isinstance(error, MemoryError) and not text:
        return "out of memory: the slot process reached its address space limit"
    return text


def import_hint(error: ImportError, task_manager_id: str) -> str:
    """What to do about a package that is not there; "" where that is not what has failed."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    package = error.name.partition(".")[0]
    return (
        f"TaskManager {task_manager_id} cannot import what is needed of the package {package!r}: install it in the "
        "TaskManagers' environment, or send it with the job as py-file or wheel"
    )


_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120 - compared with frames' file names


def _stack_of(error: BaseException) -> str:
    try:
        stack = traceback.TracebackException.from_exception(error)
        whole = list(stack.stack)
        if isinstance(error, InvalidInputError):  # a sentence of ours about what the user has brought
            whole = [frame for frame in whole if not frame.filename.startswith(_OURS)]
        users = next((i for i, frame in enumerate(whole) if not frame.filename.startswith(_OURS)), 0)
        stack.stack = traceback.StackSummary.from_list(whole[users:])
        return "".join(stack.format())
    except Exception:  # noqa: BLE001 - formatting runs user code (__str__, __repr__)
        return f"{_class_name(error)}: {_message_of(error)}"


def _shorten(text: str, length_max: int) -> str:
    clean = text.encode("utf-8", "replace").decode()
    if len(clean) <= length_max:
        return clean
    half = length_max // 2
    return f"{clean[:half]}\n... {len(clean) - 2 * half} characters left out ...\n{clean[-half:]}"


def of_lost_partitions(failure: FailureInfo, partition_ids: tuple[PartitionId, ...], problem: str) -> FailureInfo:
    """The failure of a task whose input is gone: not its own, and no retry of it alone helps."""
    return replace(
        failure,
        class_name=LOST_PARTITIONS,
        message=_shorten(f"input partitions cannot be read: {problem} ({failure.class_name})", MESSAGE_LENGTH_MAX),
        kind=SYSTEM,
        is_recoverable=True,
        lost_partitions=partition_ids,
        fault=Fault.SYSTEM,
        is_restart_vain=False,
    )


def of_lost_spark(failure: FailureInfo) -> FailureInfo:
    """The failure of a task behind which Spark does not answer any more."""
    return replace(failure, kind=SYSTEM, is_recoverable=True, fault=Fault.SYSTEM, is_restart_vain=False)


def of_system(
    message: str,
    *,
    timestamp_millis: int,
    kind: str = SYSTEM,
    class_name: str = "SlotError",
    fault: Fault | None = None,
) -> FailureInfo:
    """A failure that the TaskManager saw, and that may not come again. `fault`: whose doing, else as `kind` says."""
    text = _shorten(message, MESSAGE_LENGTH_MAX)
    return FailureInfo(class_name, text, "", kind, True, timestamp_millis, fault=fault)  # noqa: FBT003


def of_memory_limit(used: int, limit: int, processes: int, *, timestamp_millis: int) -> FailureInfo:
    """The TaskManager killed the slot process for its memory."""
    several = f" in {processes} processes" if processes > 1 else ""
    message = (
        f"killed by the TaskManager: the task used {format_bytes(used)} of memory{several}, above the slot's limit of "
        f"{format_bytes(limit)} (taskmanager.memory.task.size / taskmanager.numberOfTaskSlots)"
    )
    return of_system(
        message,
        timestamp_millis=timestamp_millis,
        kind=RESOURCE,
        class_name="MemoryLimitExceededError",
        fault=Fault.USER,
    )


def of_lost_environment(loss: SparkLoss, *, is_own: bool, jobs: int, timestamp_millis: int) -> FailureInfo:
    """The Spark that the task used is gone (R23). `is_own`: the loss names its session; `jobs`: how many used Spark."""
    if is_own and loss.is_deed:
        message = (
            f"this task has ended the Spark of its TaskManager, which other jobs use too: {loss}. End a script with "
            "sys.exit(), or by reaching its end; what runs in a Spark of its own (spark-submit) may end that"
        )
        return FailureInfo(ENDED_SPARK, message, "", USER, False, timestamp_millis, fault=Fault.USER)  # noqa: FBT003
    begin = "the Spark of this TaskManager was lost while the task used it"
    if loss.session_id and not is_own:
        message = f"{begin}, and another task was the cause: {loss}"
        return of_system(message, timestamp_millis=timestamp_millis, class_name=LOST_SPARK, fault=Fault.NOBODY)
    others = "" if is_own else _possible_causes(jobs)
    return of_system(f"{begin}: {loss}{others}", timestamp_millis=timestamp_millis, class_name=LOST_SPARK)


def _possible_causes(jobs: int) -> str:
    if jobs == 1:
        return ". No other job used it; whether this one was the cause is not known"
    return f". {jobs} jobs used it; which of them was the cause, if one was, is not known"


def of_lost_template(reason: str, *, is_own: bool, timestamp_millis: int) -> FailureInfo:
    """All slot processes ended with the process that forks them, which is ours. `is_own`: this task has ended it."""
    if is_own:
        message = f"user code has ended the process that all tasks of its TaskManager are forked from: {reason}"
        return of_system(message, timestamp_millis=timestamp_millis, kind=USER, class_name=_CLASS_OF_EXIT)
    message = f"the task's process was lost: {reason}"
    return of_system(message, timestamp_millis=timestamp_millis, class_name=LOST_TEMPLATE, fault=Fault.NOBODY)


def of_refusal(what: str, *, timestamp_millis: int) -> FailureInfo:
    """The TaskManager killed the slot process for what came over its socket, which user code can reach (R52)."""
    message = (
        f"killed by the TaskManager: over the connection of the task's process came what no slot process sends "
        f"({what}). Does its code write to file descriptors that it has not opened?"
    )
    return of_system(message, timestamp_millis=timestamp_millis, kind=USER, class_name=_CLASS_OF_EXIT)


def of_exit(
    code: int, *, memory_bytes: int, timestamp_millis: int, is_own: bool = False, is_above_its_group: bool = False
) -> FailureInfo:
    """The slot process ended while user code ran. `code` is as subprocess has it: negative for a signal.

    `is_own`: user code has sent that signal. `is_above_its_group`: the limit of its control group has.
    """
    if code >= 0:
        message = (
            f"user code ended its process with exit code {code} (os._exit, or a library that exits); "
            "return from the function or raise instead"
        )
        return of_system(message, timestamp_millis=timestamp_millis, kind=USER, class_name=_CLASS_OF_EXIT)
    name = _signal_name(-code)
    if is_own:
        message = f"user code ended its process with {name}; return from the function or raise instead"
        return of_system(message, timestamp_millis=timestamp_millis, kind=USER, class_name=_CLASS_OF_EXIT)
    if -code == signal.SIGKILL and is_above_its_group:
        message = (
            f"the task's process was killed by {name}, by the out-of-memory killer of its slot: the slot's memory grew "
            "above its limit faster than it is looked at, to that of its control group (taskmanager.slots.cgroups); "
            "give slots more (taskmanager.memory.task.size), or let the task use less"
        )
        return of_system(message, timestamp_millis=timestamp_millis, kind=RESOURCE, class_name=_CLASS_OF_EXIT)
    if -code == signal.SIGKILL:
        message = (
            f"the task's process was killed by {name}, not by this TaskManager: most likely by the machine's "
            f"out-of-memory killer (it had used at least {format_bytes(memory_bytes)})"
            "; somebody's `kill -9` looks the same, and so does `kill -9 0` in a shell that the task has started"
        )
        return of_system(message, timestamp_millis=timestamp_millis, kind=RESOURCE, class_name=_CLASS_OF_EXIT)
    if -code in _FROM_OUTSIDE:
        message = f"the task's process was ended by {name}, which somebody has sent to it"
        return of_system(message, timestamp_millis=timestamp_millis, class_name=_CLASS_OF_EXIT)
    crashed = ": native code of the task crashed" if -code in _CRASHES else ""
    message = f"the task's process was ended by {name} ({signal.strsignal(-code)}){crashed}"
    return of_system(message, timestamp_millis=timestamp_millis, kind=USER, class_name=_CLASS_OF_EXIT)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

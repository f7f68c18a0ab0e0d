"""Turns the end of a process, or of its Spark, into the failure that a person reads."""

from __future__ import annotations

import signal

from runtime.common.spark_environments import HEAP, OVERHEAD
from runtime.gateways.task import FailureInfo, Fault
from runtime.taskexecutor.slot_protocol.failures import RESOURCE, USER, of_system
from runtime.taskexecutor.slot_protocol.sizes import format_bytes
from runtime.taskexecutor.spark.environment import SparkLoss

_CLASS_OF_EXIT = "SlotProcessExitError"
LOST_SPARK = "SparkLostError"
ENDED_SPARK = "SparkEndedError"
LOST_TEMPLATE = "TemplateProcessLostError"


_CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSYS, signal.SIGTRAP}
)


_FROM_OUTSIDE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""What service managers and people send."""


def of_memory_limit(
    used: int, limit: int, processes: int, *, timestamp_millis: int, slots: int = 1, jvm_bytes: int = 0
) -> FailureInfo:
    """The TaskManager killed the slot process for its memory. `slots`: of this task; `jvm_bytes`: of its JVM, in the
    limit.
    """
    whose = "the slot's limit" if slots == 1 else f"the limit of its {slots} slots"
    several = f" in {processes} processes" if processes > 1 else ""
    of_slots = f"{slots} x " if slots > 1 else ""
    of_jvm = f", and {format_bytes(jvm_bytes)} for its JVM: {HEAP} and {OVERHEAD}" if jvm_bytes else ""
    message = (
        f"killed by the TaskManager: the task used {format_bytes(used)} of memory{several}, above {whose} of "
        f"{format_bytes(limit)} ({of_slots}taskmanager.memory.task.size / taskmanager.numberOfTaskSlots{of_jvm}). A "
        "task that needs more asks for it with resources (memory); "
        "spark.driver.memory is the heap of a JVM, another memory"
    )
    return of_system(
        message,
        timestamp_millis=timestamp_millis,
        kind=RESOURCE,
        class_name="MemoryLimitExceededError",
        fault=Fault.USER,
    )


def of_lost_environment(
    loss: SparkLoss, *, is_own: bool, is_alone: bool, jobs: int, timestamp_millis: int
) -> FailureInfo:
    """The Spark that the task used is lost (R23). `is_own`: the loss names its session. `is_alone`: no other job may
    use that Spark. `jobs`: how many used it.
    """
    if is_own and loss.is_deed:
        whose = "the Spark of its job" if is_alone else "the Spark of its TaskManager, which other jobs use too"
        message = (
            f"this task has ended {whose}: {loss}. End a script with "
            "sys.exit(), or by reaching its end; what runs in a Spark of its own (spark-submit) may end that"
        )
        return FailureInfo(ENDED_SPARK, message, "", USER, False, timestamp_millis, fault=Fault.USER)  # noqa: FBT003
    whose = "a Spark of the job's own" if is_alone else "the Spark of this TaskManager"
    begin = f"{whose} was lost while the task used it"
    if loss.session_id and not is_own:
        message = f"{begin}, and another task was the cause: {loss}"
        return of_system(message, timestamp_millis=timestamp_millis, class_name=LOST_SPARK, fault=Fault.NOBODY)
    others = "" if is_own or is_alone else _possible_causes(jobs)
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

"""Turns an exception of user code into the failure that a person reads. Runs in the slot process."""

from __future__ import annotations

import os
import traceback
from dataclasses import replace

from runtime.common.errors import InvalidInputError
from runtime.common.ids import PartitionId
from runtime.gateways.task import FailureInfo, Fault
from runtime.taskexecutor.slot_process import causes
from runtime.taskexecutor.slot_process.cause_sentence import cause_in_words, with_place
from runtime.taskexecutor.slot_protocol.failures import (
    CLASS_LENGTH_MAX,
    MESSAGE_LENGTH_MAX,
    STACK_LENGTH_MAX,
    SYSTEM,
    shorten,
)
from runtime.taskexecutor.spark_protocol.java_causes import java_chain

LOST_PARTITIONS = "PartitionUnavailableError"


def of_exception(error: BaseException, *, timestamp_millis: int) -> FailureInfo:
    """A failure as it happened in the slot process, with the user's part of the stack."""
    chain = java_chain(error)
    verdict = causes.verdict_of(error, chain)
    message = cause_in_words(_message_of(error), chain)
    return FailureInfo(
        class_name=_class_name(error),
        message=shorten(message if chain else with_place(message, error), MESSAGE_LENGTH_MAX),
        stack_trace=shorten(_stack_of(error), STACK_LENGTH_MAX),
        kind=verdict.kind,
        is_recoverable=verdict.is_recoverable,
        timestamp_millis=timestamp_millis,
        fault=verdict.fault,
        is_restart_vain=verdict.is_restart_vain,
    )


def _class_name(error: BaseException) -> str:
    cls = type(error)
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    return shorten(name, CLASS_LENGTH_MAX)  # R52: user code makes classes, too


def _message_of(error: BaseException) -> str:
    try:
        text = "\n".join([str(error), *map(str, getattr(error, "__notes__", ()))])
    except Exception as broken:  # noqa: BLE001 - __str__ is user code
        text = f"<{type(error).__name__} whose text cannot be made: {type(broken).__name__}>"
    if isinstance(error, MemoryError) and not text:
        return "out of memory: the slot process reached its address space limit"
    return text


def import_hint(error: ImportError, task_manager_id: str) -> str:
    """Advice about a missing package; "" where the failure is another one."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    package = error.name.partition(".")[0]
    return (
        f"TaskManager {task_manager_id} cannot import what is needed of the package {package!r}: install it in the "
        "TaskManagers' environment, or send it with the job as py-file or wheel"
    )


_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120 - compared with frames' file names


def _stack_of(error: BaseException) -> str:
    if isinstance(error, causes.IN_ONE_SENTENCE):
        return "".join(traceback.format_exception_only(error))
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


def of_lost_partitions(failure: FailureInfo, partition_ids: tuple[PartitionId, ...], problem: str) -> FailureInfo:
    """The failure of a task whose input is lost: not the task's fault, and no restart of it alone helps."""
    return replace(
        failure,
        class_name=LOST_PARTITIONS,
        message=shorten(f"input partitions cannot be read: {problem} ({failure.class_name})", MESSAGE_LENGTH_MAX),
        kind=SYSTEM,
        is_recoverable=True,
        lost_partitions=partition_ids,
        fault=Fault.SYSTEM,
        is_restart_vain=False,
    )


def of_lost_spark(failure: FailureInfo) -> FailureInfo:
    """The failure of a task behind which Spark does not answer any more."""
    return replace(failure, kind=SYSTEM, is_recoverable=True, fault=Fault.SYSTEM, is_restart_vain=False)

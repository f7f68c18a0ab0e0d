"""What an exception of user code is about: who is at fault, and whether a restart helps.

Decided by classes, of Python and of Java, where the exception is caught (R36, D-061): no later process reads texts.
Only Hadoop's `Mkdirs failed` has no class of its own. Neither pyspark nor py4j is imported here: without Spark there
is none.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError, NonRecoverableError
from runtime.gateways.task import Fault
from runtime.taskexecutor.slot_protocol.failures import RESOURCE, SYSTEM, USER
from runtime.taskexecutor.spark_protocol.java_causes import JavaCause

MKDIRS_FAILED = "Mkdirs failed to create "
_JAVA_UNWRITABLE = frozenset(
    {
        "java.nio.file.AccessDeniedException",
        "java.nio.file.ReadOnlyFileSystemException",
        "org.apache.hadoop.fs.ParentNotDirectoryException",
        "org.apache.hadoop.fs.UnsupportedFileSystemException",
        "org.apache.hadoop.security.AccessControlException",
    }
)
_JAVA_OUT_OF_MEMORY = frozenset({"java.lang.OutOfMemoryError", "org.apache.spark.memory.SparkOutOfMemoryError"})
_UNWRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_LOST_CONNECTIONS = frozenset({"py4j.protocol.Py4JNetworkError"})


class TaskError(Exception):
    """A task cannot go on, for a reason that we found and the user can mend. Its text is all there is to say."""


class UnusableCodeError(TaskError):
    """User code that cannot be loaded: running the attempt again will not help."""


class MisuseError(TaskError):
    """User code that uses a source, or its context, as no attempt can: running the attempt again will not help."""


class ApplicationError(TaskError):
    """A Java application has not ended with exit code 0."""


class ApplicationLostError(Exception):
    """Something outside of a Java application has ended its JVM."""


class RemoteFileError(TaskError):
    """A file of the job that is named by a URL is not there, or may not be read."""


class SparkUnavailableError(Exception):
    """Spark was asked for and this TaskManager does not have it now."""


class FileUnavailableError(Exception):
    """A file of the job that is named by a URL cannot be read now: its storage, or the way to it, fails."""


class StateNotFoundError(Exception):
    """The directory of a streaming query lacks a batch that the query has committed: it does not begin anew (R59).

    Another TaskManager may have it, and a shared file system may show it late, so the restart strategy may try.
    """


IN_ONE_SENTENCE = (ApplicationError, ApplicationLostError, RemoteFileError, FileUnavailableError, StateNotFoundError)
"""Their text says all: no frame of ours, and no error behind them, helps a user."""

_OF_THE_SYSTEM = (SparkUnavailableError, FileUnavailableError, ApplicationLostError, StateNotFoundError)
_REPEATED_BY_NATURE = (
    UnusableCodeError,
    MisuseError,
    RemoteFileError,
    NonRecoverableError,
    InvalidInputError,
    ImportError,
    SyntaxError,
)
"""Only other code helps: what cannot be loaded or work, what user code declares so, a Spark conf that is refused."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`is_recoverable`: a later try may end otherwise. `is_restart_vain`: not so one some seconds later."""

    kind: str
    fault: Fault
    is_recoverable: bool = True
    is_restart_vain: bool = False


def verdict_of(error: BaseException, chain: Sequence[JavaCause]) -> Verdict:
    """The verdict about an exception that user code did not catch; `chain`: the Java exceptions that it carries."""
    if isinstance(error, MemoryError):
        return Verdict(RESOURCE, Fault.USER)  # its own address space is used up
    if isinstance(error, _OF_THE_SYSTEM) or _LOST_CONNECTIONS & _class_names(error):
        return Verdict(SYSTEM, Fault.SYSTEM)
    if any(cause.class_name in _JAVA_OUT_OF_MEMORY for cause in chain):
        return Verdict(RESOURCE, Fault.SYSTEM)  # all jobs share that heap
    if isinstance(error, _REPEATED_BY_NATURE) or _is_of_spark(error, "ParseException"):
        return Verdict(USER, Fault.USER, is_recoverable=False, is_restart_vain=True)
    is_unwritable = isinstance(error, OSError) and error.errno in _UNWRITABLE
    is_vain = is_unwritable or _is_of_spark(error, "AnalysisException") or any(map(_is_unwritable, chain))
    return Verdict(USER, Fault.USER, is_restart_vain=is_vain)


def _is_unwritable(cause: JavaCause) -> bool:
    return cause.class_name in _JAVA_UNWRITABLE or is_failed_mkdirs(cause)


def is_failed_mkdirs(cause: JavaCause) -> bool:
    """Hadoop could not make a directory, and has no class of its own for that."""
    return cause.class_name == "java.io.IOException" and cause.message.startswith(MKDIRS_FAILED)


def _is_of_spark(error: BaseException, name: str) -> bool:
    """True for an exception of this class of pyspark.errors, in the JVM's form and in Spark Connect's."""
    return any(cls.__name__ == name and cls.__module__.startswith("pyspark.errors.") for cls in type(error).__mro__)


def _class_names(error: BaseException) -> set[str]:
    return {f"{cls.__module__}.{cls.__name__}" for cls in type(error).__mro__}

"""The failures of a job: the root cause first, and those that happened while it was being handled.

Invariant: bounded. Of a thousand subtasks that fail together the first one is the cause and a few more are kept.
"""

from __future__ import annotations

from runtime.executiongraph.archived import ArchivedException
from runtime.executiongraph.core.execution import Execution
from runtime.gateways.task import FailureInfo

CONCURRENT_FAILURES_MAX = 15


def system_failure(class_name: str, message: str, at_millis: int, *, kind: str = "SYSTEM") -> FailureInfo:
    """A failure that the JobMaster itself found."""
    return FailureInfo(
        class_name=class_name,
        message=message,
        stack_trace=f"{class_name}: {message}",
        kind=kind,
        is_recoverable=True,
        timestamp_millis=at_millis,
    )


class FailureHistory:
    """Root cause and concurrent failures. In Flink's terms one entry: nothing restarts after it."""

    __slots__ = ("_concurrent", "_root")

    def __init__(self) -> None:
        self._root: ArchivedException | None = None
        self._concurrent: list[ArchivedException] = []

    @property
    def root(self) -> FailureInfo | None:
        """The cause, None while nothing has failed."""
        return self._root.failure if self._root is not None else None

    def add(self, failure: FailureInfo, execution: Execution | None, task_name: str) -> None:
        """Record a failure, of a task or (without one) of the whole job."""
        location = execution.location if execution is not None else None
        entry = ArchivedException(
            failure=failure,
            task_name=task_name,
            endpoint=location.address if location is not None else "",
            task_manager_id=location.task_manager_id if location is not None else "",
        )
        if self._root is None:
            self._root = entry
        elif len(self._concurrent) < CONCURRENT_FAILURES_MAX:
            self._concurrent.append(entry)

    def archived(self) -> tuple[ArchivedException, ...]:
        """Newest first, which is the only one."""
        if self._root is None:
            return ()
        root = self._root
        concurrent = tuple(self._concurrent)
        return (ArchivedException(root.failure, root.task_name, root.endpoint, root.task_manager_id, concurrent),)

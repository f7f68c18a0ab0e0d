"""The failures of a job: root causes, each with the failures that happened while it was being handled.

Invariant: bounded. When a thousand subtasks fail together, the history keeps the first as the cause, and a few more.
What is nobody's fault (a slot that went to another queue, a drain) goes before anything that somebody has to look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runtime.common.failure_words import with_class
from runtime.executiongraph.archived import CANCELLATION, ArchivedException
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.failure_enricher import Enrich, FailureContext
from runtime.gateways.task import FailureInfo, Fault

CONCURRENT_FAILURES_MAX = 15
LATEST_LENGTH_MAX = 200


def system_failure(
    class_name: str, message: str, at_millis: int, *, kind: str = "SYSTEM", is_recoverable: bool = True
) -> FailureInfo:
    """A failure that the JobMaster itself found."""
    return FailureInfo(
        class_name=class_name,
        message=message,
        stack_trace=f"{class_name}: {message}",
        kind=kind,
        is_recoverable=is_recoverable,
        timestamp_millis=at_millis,
    )


def shown(failure: FailureInfo) -> FailureInfo:
    """The failure without its lost partitions, which are for the scheduler and can be many."""
    return replace(failure, lost_partitions=()) if failure.lost_partitions else failure


@dataclass(slots=True)
class _Entry:
    root: ArchivedException
    concurrent: list[ArchivedException]


class FailureHistory:
    """One entry for each root cause, with the failures that happened while it was handled."""

    __slots__ = ("_enrich", "_entries", "_graph", "_roots_max")

    def __init__(self, graph: ExecutionGraph, roots_max: int, enrich: Enrich) -> None:
        self._graph = graph
        self._enrich = enrich
        self._roots_max = roots_max
        self._entries: list[_Entry] = []

    def add(self, exception: ArchivedException, *, is_concurrent: bool) -> bool:
        """Record a failure. Returns False if its entry has no room; the first failure of all is always a root."""
        if not is_concurrent or not self._entries:
            self._make_room()
            self._entries.append(_Entry(exception, []))
            return True
        concurrent = self._entries[-1].concurrent
        if len(concurrent) >= CONCURRENT_FAILURES_MAX:
            return False
        concurrent.append(exception)
        return True

    def _make_room(self) -> None:
        """Before a further root: the oldest one that is nobody's fault goes, else the oldest."""
        if len(self._entries) >= self._roots_max:
            of_nobody = (
                number
                for number, entry in enumerate(self._entries)
                if entry.root.failure.at_fault is Fault.NOBODY and not entry.concurrent
            )
            del self._entries[next(of_nobody, 0)]

    def cancelled(self, reason: str | None, at_millis: int) -> None:
        """Record the reason for which the cluster itself cancels the job, if any."""
        if reason:
            self.add(self.exception(system_failure(CANCELLATION, reason, at_millis), None), is_concurrent=False)

    @property
    def latest(self) -> str:
        """The latest failure in one line."""
        if not self._entries:
            return ""
        failure = self._entries[-1].root.failure
        return " ".join(with_class(failure.class_name, failure.message[:LATEST_LENGTH_MAX]).split())

    @property
    def latest_labels(self) -> Mapping[str, str]:
        """What failure enrichers say of it."""
        return self._entries[-1].root.labels if self._entries else {}

    def archived(self) -> tuple[ArchivedException, ...]:
        """The archived entries, newest first."""
        return tuple(replace(entry.root, concurrent=tuple(entry.concurrent)) for entry in reversed(self._entries))

    def exception(self, failure: FailureInfo, execution: Execution | None, whose: str = "") -> ArchivedException:
        """The entry of a failure: of a task, of the whole job without one, or of the subject that `whose` names."""
        location = execution.location if execution is not None else None
        task_name = self._graph.task_name(execution) if execution is not None else whose
        return ArchivedException(
            failure=shown(failure),
            task_name=task_name,
            endpoint=location.address if location is not None else "",
            task_manager_id=location.task_manager_id if location is not None else "",
            labels=self._enrich(FailureContext(self._graph.job_id, self._graph.name, task_name, failure)),
        )

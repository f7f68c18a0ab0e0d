"""What a plug-in is told of a failure, and what it answers: labels that REST shows with it.

A plug-in is an entry point of the group `airflow_flinklike.failure_enrichers`: a class without arguments whose
objects implement `FailureEnricher`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from runtime.common.ids import JobId
from runtime.gateways.task import FailureInfo


@dataclass(frozen=True, slots=True)
class FailureContext:
    """A failure and whose it is. `task_name` is "" when it is not one task's."""

    job_id: JobId
    job_name: str
    task_name: str
    failure: FailureInfo


class FailureEnricher(Protocol):
    """Labels failures. It is asked between two decisions of a job, so it must not wait for anything."""

    @property
    def output_keys(self) -> frozenset[str]:
        """The keys of its labels; others are dropped, and so are keys that two plug-ins have."""

    def enrich(self, context: FailureContext, /) -> Mapping[str, str]:
        """The labels of one failure."""


Enrich = Callable[[FailureContext], Mapping[str, str]]


def label_type(context: FailureContext) -> Mapping[str, str]:
    """Whose mistake it was: USER, SYSTEM or RESOURCE."""
    return {"type": context.failure.kind} if context.failure.kind else {}

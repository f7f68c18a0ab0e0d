"""The interface of plug-ins that label failures; REST shows the labels.

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
    """A failure and its job. `task_name` is "" for a failure of the whole job."""

    job_id: JobId
    job_name: str
    task_name: str
    failure: FailureInfo


class FailureEnricher(Protocol):
    """Labels failures. The JobMaster calls it between two decisions of a job, so it must not block."""

    @property
    def output_keys(self) -> frozenset[str]:
        """The keys of its labels. Labels with other keys are dropped, and so are keys that two plug-ins have."""

    def enrich(self, context: FailureContext, /) -> Mapping[str, str]:
        """The labels of one failure."""


Enrich = Callable[[FailureContext], Mapping[str, str]]


def label_type(context: FailureContext) -> Mapping[str, str]:
    """The kind of the failure: USER, SYSTEM or RESOURCE."""
    return {"type": context.failure.kind} if context.failure.kind else {}

"""OpenLineage: the methods of operators that the provider calls, and the properties in the Spark conf of the job.

The provider is optional. It is imported only after it has called a method here. On a warm Spark the properties are conf
of the job's session, where the code of the job reads them. A listener in the JVM reads its own (transport, parent of
the application) at the start of Spark, from the TaskManager's Spark conf.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_flinklike.api.job_program import JobProgram

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)

Properties = dict[str, Any]
Inject = Callable[[Properties, "Context"], Properties]


@dataclass(frozen=True, slots=True)
class LineageJob:
    """The job of a task: its id, and the address of its cluster."""

    job_id: str
    cluster: str


class OpenLineageMethods(ABC):
    """The three methods that the provider calls, from `lineage_job`."""

    @abstractmethod
    def lineage_job(self) -> LineageJob | None:
        """The job of this execution, None before there is one."""

    def get_openlineage_facets_on_start(self) -> Any:
        """OperatorLineage of a task that begins; it names a job that an earlier try has submitted."""
        return operator_lineage(self.lineage_job())

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """OperatorLineage of a task that has succeeded."""
        del task_instance
        return operator_lineage(self.lineage_job())

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """OperatorLineage of a failed task. The provider takes the cause from the task's exception."""
        del task_instance
        return operator_lineage(self.lineage_job())


def operator_lineage(job: LineageJob | None) -> Any:
    """The provider's OperatorLineage; None where the provider is not installed."""
    try:
        from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415 - optional
    except ImportError:
        return None
    from airflow.providers.common.compat.openlineage import facet  # noqa: PLC0415 - comes with the provider

    facets: dict[str, Any] = {}
    if job is not None:
        facets["externalQuery"] = facet.ExternalQueryRunFacet(externalQueryId=job.job_id, source=job.cluster)
    return OperatorLineage(run_facets=facets)


def with_lineage(program: JobProgram, context: Context, *, inject_parent: bool, inject_transport: bool) -> JobProgram:
    """The program with the wanted properties in its Spark conf. A key that the conf has already stays."""
    before = dict(program.graph.spark_conf)
    conf: Mapping[str, Any] = before
    for is_wanted, name in (
        (inject_parent, "inject_parent_job_information_into_spark_properties"),
        (inject_transport, "inject_transport_information_into_spark_properties"),
    ):
        inject = _injection(name) if is_wanted else None
        if inject is not None:
            conf = inject(dict(conf), context)
    if conf == before:
        return program
    texts = {str(key): str(value) for key, value in conf.items()}
    return replace(program, graph=program.graph.model_copy(update={"spark_conf": texts}))


def _injection(name: str) -> Inject | None:
    try:
        from airflow.providers.openlineage.utils import spark  # noqa: PLC0415 - optional
    except ImportError:
        logger.warning("apache-airflow-providers-openlineage is not installed: nothing is injected into the Spark conf")
        return None
    found: Inject = getattr(spark, name)
    return found

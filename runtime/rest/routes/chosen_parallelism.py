"""Which options of a job about its parallelism decide nothing, told when it is submitted."""

from __future__ import annotations

from runtime.config.job_configuration import idle_parallelism_options, parallelism_options
from runtime.config.options.adaptive_batch import AUTO_PARALLELISM_ENABLED, PARALLELISM_DEFAULT, SCHEDULER
from runtime.jobgraph.graph import JobGraph


def parallelism_doubts(graph: JobGraph, *, scheduler: str, is_cluster_enabled: bool) -> list[str]:
    """What a job gives for vertices without a parallelism of their own, and what it has no effect for.

    For a configuration without problems. `scheduler` is the cluster's, `is_cluster_enabled` says whether that chooses.
    """
    if not (given := parallelism_options(graph.configuration)):
        return []
    if not any(vertex.is_auto for vertex in graph.vertices):
        return [f"{', '.join(given)}: without effect, as each vertex of the job has a parallelism of its own"]
    if scheduler == "Default":
        idle = [key for key in given if key != PARALLELISM_DEFAULT.key]
        why = f"the cluster has {SCHEDULER.key}: {scheduler}"
    else:
        idle = idle_parallelism_options(graph.configuration, is_cluster_enabled=is_cluster_enabled)
        chosen = "true" if idle == [PARALLELISM_DEFAULT.key] else "false"
        why = f"{AUTO_PARALLELISM_ENABLED.key} is {chosen} for the job"
    return [f"{', '.join(idle)}: without effect, as {why}"] if idle else []

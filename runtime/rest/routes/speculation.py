"""Which vertices of a job speculative execution leaves out, told when the job asks for it (R67)."""

from __future__ import annotations

from runtime.config.job_configuration import asks_for_speculation, idle_speculation_options
from runtime.jobgraph.graph import JobGraph, JobVertex

_NAMED_MAX = 10
_LEFT_OUT = "execution.batch.speculative.enabled"


def speculation_problem(graph: JobGraph) -> str:
    """Why the option of a job would have no effect at all, "" if it has one. For a configuration without problems."""
    if not asks_for_speculation(graph.configuration) or any(_may_speculate(one, graph) for one in graph.vertices):
        return ""
    return f"configuration: {_LEFT_OUT} has no effect: {_reasons(graph)}. Leave it out"


def speculation_doubts(graph: JobGraph, *, is_cluster_enabled: bool) -> list[str]:
    """Which vertices it leaves out, and which options have no effect."""
    if idle := idle_speculation_options(graph.configuration, is_cluster_enabled=is_cluster_enabled):
        return [f"{', '.join(idle)}: without effect, as {_LEFT_OUT} is not true for the job"]
    if not asks_for_speculation(graph.configuration) or not (reasons := _reasons(graph)):
        return []
    return [f"{_LEFT_OUT} leaves out vertices: {reasons}"]


def _may_speculate(vertex: JobVertex, graph: JobGraph) -> bool:
    return not _reason(vertex, graph)


def _reasons(graph: JobGraph) -> str:
    found = [(vertex.name, reason) for vertex in graph.vertices if (reason := _reason(vertex, graph))]
    told = [f"{name!r} {reason}" for name, reason in found[:_NAMED_MAX]]
    return "; ".join(told) + (f"; and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else "")


def _reason(vertex: JobVertex, graph: JobGraph) -> str:
    if vertex.runs_queries:
        return "runs streaming queries"
    if vertex.splits_on_demand:
        return "takes its splits on demand, so that a slow one holds back no other"
    if vertex.is_exclusive(graph):
        return "is exclusive, and never runs twice at once (exclusive=False would let it)"
    if not vertex.is_auto and vertex.parallelism == 1:
        return "has one subtask, which has none to be compared with"
    return ""

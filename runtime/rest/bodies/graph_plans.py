"""Flink's plan of a job that nobody has submitted yet."""

from __future__ import annotations

from runtime.common.ids import JobId
from runtime.jobgraph.graph import JobGraph, JobVertex
from runtime.rest.bodies.job_bodies import plan_node
from runtime.rest.bodies.schema import jobs as schema


def plan_of_graph(job_id: JobId, graph: JobGraph) -> schema.Plan:
    """The plan, sinks first, as that of a job that runs."""
    return {
        "jid": job_id,
        "name": graph.name,
        "type": graph.job_type.value,
        "nodes": [
            plan_node(one.id, one.parallelism, _description(one), graph.in_edges(one.id))
            for one in reversed(graph.vertices)
        ],
    }


def _description(vertex: JobVertex) -> str:
    return "<br/>".join(operator.name for operator in vertex.operators)

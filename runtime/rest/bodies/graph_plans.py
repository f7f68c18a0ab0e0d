"""Flink's plan of a job that nobody has submitted yet."""

from __future__ import annotations

from runtime.common.ids import JobId
from runtime.jobgraph.graph import JobGraph, JobVertex
from runtime.rest.bodies.schema import jobs as schema


def plan_of_graph(job_id: JobId, graph: JobGraph) -> schema.Plan:
    """The plan, sinks first, as that of a job that runs."""
    return {
        "jid": job_id,
        "name": graph.name,
        "type": graph.job_type.value,
        "nodes": [_node(graph, vertex) for vertex in reversed(graph.vertices)],
    }


def _node(graph: JobGraph, vertex: JobVertex) -> schema.PlanNode:
    node: schema.PlanNode = {
        "id": vertex.id,
        "operator": "",
        "parallelism": vertex.parallelism,
        "operator_strategy": "",
        "description": "<br/>".join(operator.name for operator in vertex.operators),
        "optimizer_properties": {},
    }
    inputs: list[schema.PlanInput] = [
        {"id": edge.source, "num": number, "exchange": "blocking", "ship_strategy": edge.mode.value}
        for number, edge in enumerate(graph.in_edges(vertex.id))
    ]
    if inputs:
        node["inputs"] = inputs
    return node

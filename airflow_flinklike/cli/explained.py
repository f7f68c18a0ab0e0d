"""`flinklike explain JOB`: the plan of a submitted job, with the parallelism that the cluster has chosen, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_flinklike.cli import render

_JOB_ID = re.compile(r"[0-9a-f]{32}")


def names_job(target: str) -> bool:
    """True if a target of `explain` is the id of a job, and no module or file."""
    return _JOB_ID.fullmatch(target) is not None


def plan_of(details: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a job as JSON values, from `GET /jobs/:id`: a parallelism is -1 until the cluster has chosen it."""
    names = {vertex["id"]: vertex["name"] for vertex in details["vertices"]}
    chains = [
        {
            "vertex": vertex["name"],
            "parallelism": vertex["parallelism"],
            "max_parallelism": vertex.get("maxParallelism", 0),
            "exclusive": vertex.get("exclusive", False),
            "decision": vertex.get("parallelism-decision", ""),
        }
        for vertex in details["vertices"]
    ]
    exchanges = [
        {
            "source": names.get(edge["id"], edge["id"]),
            "target": names.get(node["id"], node["id"]),
            "mode": edge.get("ship_strategy", ""),
        }
        for node in reversed(details["plan"]["nodes"])
        for edge in node.get("inputs", ())
    ]
    return {"name": details["name"], "job_id": details["jid"], "chains": chains, "exchanges": exchanges}


def plan_text(details: Mapping[str, Any]) -> str:
    """The plan of a job for people, in the words of `flinklike explain TARGET`."""
    return "\n".join(_lines(plan_of(details), render.decision_lines(details)))


def _lines(plan: Mapping[str, Any], decisions: list[str]) -> Iterator[str]:
    yield f"job {plan['name']} {plan['job_id']}"
    yield "chains:"
    for chain in plan["chains"]:
        chosen = f"parallelism not chosen yet, up to {chain['max_parallelism']}"
        marks = [chosen if chain["parallelism"] < 0 else f"parallelism {chain['parallelism']}"]
        marks += ["exclusive"] if chain["exclusive"] else []
        yield f"  {chain['vertex']}  ({', '.join(marks)})"
    yield "exchanges:" if plan["exchanges"] else "exchanges: none"
    for exchange in plan["exchanges"]:
        yield f"  {exchange['source']}  =={exchange['mode']}==>  {exchange['target']}"
    yield from decisions

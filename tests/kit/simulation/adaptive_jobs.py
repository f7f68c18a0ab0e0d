"""Jobs whose parallelism the cluster chooses (R66)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runtime.aio.entropy import SeededEntropy
from runtime.common.exchange import ExchangeMode
from runtime.common.ids import JobId
from runtime.jobgraph.graph import AUTO_PARALLELISM, JobGraph, OperatorKind
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.simulation.chosen_rows import SUBPARTITIONS
from tests.kit.simulation.clients import PlannedJob
from tests.kit.simulation.user_code import UserCode


def planned_adaptive_jobs(entropy: SeededEntropy) -> Iterator[PlannedJob]:
    """A few of them, early enough that faults meet them before and behind their decisions."""
    for number in range(4):
        draw = entropy.child(f"job-{number}").uniform
        made = _graph(is_skewed=draw(0, 1) < 0.5, has_forward=draw(0, 1) < 0.5)
        programs = {one.id: UserCode(0.0, draw(0.5, 6.0)) for one in made.vertices}
        yield PlannedJob(JobId(entropy.child(f"id-{number}").hex_id()), made, programs, draw(0.0, 30.0))


def _graph(*, is_skewed: bool, has_forward: bool) -> JobGraph:
    chosen: dict[str, Any] = {"parallelism": AUTO_PARALLELISM, "max_parallelism": SUBPARTITIONS}
    read = source("read", splits=(1, 2, 3), **chosen)
    totals = vertex("totals", **chosen)
    hashed = edge("read", "totals", ExchangeMode.HASH, key_columns=("k",), splittable=is_skewed)
    write = vertex("write", OperatorKind.SINK)
    if not has_forward:
        return graph(read, totals, write, edges=(hashed, edge("totals", "write", ExchangeMode.GATHER)))
    more = vertex("more", **chosen)
    forward = edge("totals", "more", ExchangeMode.FORWARD)
    return graph(read, totals, more, write, edges=(hashed, forward, edge("more", "write", ExchangeMode.GATHER)))

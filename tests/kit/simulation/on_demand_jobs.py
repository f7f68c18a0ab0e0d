"""Jobs whose sources take their splits on demand (R12): which attempt reads which split is open, that each is read once
is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from runtime.aio.entropy import SeededEntropy
from runtime.common.exchange import ExchangeMode
from runtime.common.ids import JobId
from runtime.jobgraph.graph import AUTO_PARALLELISM, JobGraph, OperatorKind
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.simulation.clients import PlannedJob
from tests.kit.simulation.user_code import UserCode

_SPLITS_MAX = 9


def planned_on_demand_jobs(entropy: SeededEntropy) -> Iterator[PlannedJob]:
    """A few of them, early enough that faults meet them between two splits."""
    for number in range(5):
        draw = entropy.child(f"job-{number}").uniform
        made = _graph(draw)
        is_exclusive = any(one.exclusive for one in made.vertices)  # then nothing could write it again
        short = not is_exclusive and draw(0, 1) < 0.4
        programs = {
            one.id: UserCode(0.0, draw(0.5, 4.0), is_short_of_input=short and one.name == "totals")
            for one in made.vertices
        }
        yield PlannedJob(JobId(entropy.child(f"id-{number}").hex_id()), made, programs, draw(0.0, 30.0))


def _graph(draw: Callable[[float, float], float]) -> JobGraph:
    splits = tuple(range(1 + round(draw(0, _SPLITS_MAX))))
    exclusive: dict[str, Any] = {"exclusive": True} if draw(0, 1) < 0.25 else {}
    parallelism = AUTO_PARALLELISM if draw(0, 1) < 0.3 else 1 + round(draw(0, 3))
    read = source("read", splits=splits, splits_on_demand=True, parallelism=parallelism, **exclusive)
    totals, write = vertex("totals", parallelism=2), vertex("write", OperatorKind.SINK)
    edges = (edge("read", "totals", ExchangeMode.HASH), edge("totals", "write", ExchangeMode.GATHER))
    return graph(read, totals, write, edges=edges)

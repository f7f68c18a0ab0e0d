"""Jobs that have slow tasks run a second time (R67), on a cluster of which one host is slow."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.aio.entropy import SeededEntropy
from runtime.common.exchange import ExchangeMode
from runtime.common.ids import JobId
from runtime.jobgraph.graph import JobGraph, OperatorKind
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.simulation.clients import PlannedJob
from tests.kit.simulation.user_code import UserCode

SLOWNESS = 10.0
"""How many times longer tasks take on the slow host."""

_OPTIONS = {
    "execution.batch.speculative.enabled": "true",
    "execution.batch.speculative.max-concurrent-executions": "3",
    "execution.batch.speculative.block-slow-node-duration": "5 s",
    "slow-task-detector.execution-time.baseline-ratio": "0.3",
    "slow-task-detector.execution-time.baseline-lower-bound": "1 s",
}


def planned_speculative_jobs(entropy: SeededEntropy) -> Iterator[PlannedJob]:
    """A few of them, early enough that faults meet them while two attempts of a subtask run."""
    for number in range(4):
        draw = entropy.child(f"job-{number}").uniform
        made = _graph(1 + round(draw(2, 5)), has_stage=draw(0, 1) < 0.5)
        files = {"write": 2} if draw(0, 1) < 0.5 else {}
        programs = {
            one.id: UserCode(0.5, draw(1.0, 4.0), files=files.get(one.name, 0), is_slower_there=True)
            for one in made.vertices
        }
        yield PlannedJob(JobId(entropy.child(f"id-{number}").hex_id()), made, programs, draw(0.0, 30.0))


def _graph(parallelism: int, *, has_stage: bool) -> JobGraph:
    read, write = source("read", parallelism=parallelism), vertex("write", OperatorKind.SINK)
    if not has_stage:
        gathered = (edge("read", "write", ExchangeMode.GATHER),)
        return graph(read, write, edges=gathered, configuration=_OPTIONS)
    stage = vertex("stage", parallelism=parallelism)
    edges = (edge("read", "stage"), edge("stage", "write", ExchangeMode.GATHER))
    return graph(read, stage, write, edges=edges, configuration=_OPTIONS)

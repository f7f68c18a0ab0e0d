"""Jobs of which some tasks need several slots of one TaskManager (D-141), beside those of the seed."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.aio.entropy import SeededEntropy
from runtime.common.ids import JobId
from runtime.config.options.taskmanager import TASK_MEMORY
from runtime.jobgraph.graph import OperatorKind, ResourceSpec
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex
from tests.kit.simulation.clients import PlannedJob
from tests.kit.simulation.user_code import UserCode


def planned_large_jobs(entropy: SeededEntropy, slots: int) -> Iterator[PlannedJob]:
    """In half of the seeds a few, of two slots or of all `slots` of a TaskManager; none where it has only one."""
    is_there = slots > 1 and entropy.child("there").uniform(0, 1) >= 0.5
    for number in range(3 if is_there else 0):
        draw = entropy.child(f"job-{number}").uniform
        shares = 2 if draw(0, 1) < 0.6 else slots
        read = source("read", parallelism=1 + round(draw(0, 1)))
        large = ResourceSpec(memory_bytes=shares * (TASK_MEMORY.default // slots))
        write = vertex("write", OperatorKind.SINK, parallelism=1 + round(draw(0, 1)), resources=large)
        made = graph(read, write, edges=(edge("read", "write"),))
        programs = {one.id: UserCode(0.0, draw(0.5, 3.0)) for one in made.vertices}
        yield PlannedJob(JobId(entropy.child(f"id-{number}").hex_id()), made, programs, draw(0.0, 40.0))

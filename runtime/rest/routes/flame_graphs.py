"""Where the running subtasks of a vertex are: their flame graph, and the back pressure of streaming queries."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from runtime.common.errors import UnavailableError
from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived import ArchivedExecution, ArchivedSubtask, ArchivedVertex
from runtime.gateways.task_executor import AttemptStacksRequest, AttemptStacksResponse
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.asking import ask_processes
from runtime.rest.bodies.flame_graph import FlameType, flame_graph
from runtime.rest.bodies.schema import flame_graphs as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.log_places import LogPlaces
from runtime.rest.routes.vertices import find_subtask, find_vertex

SAMPLES = 20
SUBTASKS_MAX = 8
"""So many running subtasks, the first ones, are looked at for the graph of a whole vertex, one of each TaskManager."""
_NONE = -3
"""What Flink says while there is nothing to see."""
_OK = "ok"
_LOW, _HIGH = 0.1, 0.5


def flame_graphs_router(context: RestContext) -> APIRouter:
    """Both routes."""
    router = authorized_router(context, prefix="/jobs/{job_id}/vertices/{vertex_id}", tags=["vertices"])

    @router.get("/flamegraph", responses=answers(schema.FlameGraph))
    async def flamegraph(
        job_id: str,
        vertex_id: str,
        type_: Annotated[FlameType, Query(alias="type")] = FlameType.FULL,
        subtask: Annotated[int | None, Query(alias="subtaskindex", ge=0)] = None,
    ) -> Response:
        """The Python stacks of running subtasks, looked at for about two seconds now."""
        vertex = await find_vertex(context, job_id, vertex_id)
        subtasks = vertex.subtasks if subtask is None else (find_subtask(vertex, subtask),)
        looked = await _look(context, [one.current for one in subtasks if _runs(one)])
        body: schema.FlameGraph = {"endTimestamp": _NONE}
        if looked:
            stacks = [stack for one in looked for stack in one.stacks]
            body = {"endTimestamp": max(one.end_millis for one in looked), "data": flame_graph(stacks, type_)}
        return JsonAnswer(body)

    @router.get("/backpressure", responses=answers(schema.BackPressure))
    async def backpressure(job_id: str, vertex_id: str) -> Response:
        """How far batches of streaming queries are behind their triggers. No other task waits for one that reads."""
        vertex = await find_vertex(context, job_id, vertex_id)
        return JsonAnswer(_back_pressure(vertex, context.clock.epoch_millis()))

    return router


def _runs(subtask: ArchivedSubtask) -> bool:
    return subtask.current.state is ExecutionState.RUNNING


async def _look(context: RestContext, attempts: list[ArchivedExecution]) -> list[AttemptStacksResponse]:
    """One attempt of each TaskManager, since that looks at one at a time. Raises UnavailableError if none is told."""
    places = LogPlaces(context.components.resource_manager.task_managers())
    by_address: dict[str, ArchivedExecution] = {}
    for one in attempts:
        if (address := places.address(one)) is not None:
            by_address.setdefault(address, one)

    async def look(address: str) -> AttemptStacksResponse:
        request = AttemptStacksRequest(ExecutionAttemptId.parse(by_address[address].attempt_id), SAMPLES)
        return await context.task_executor(address).request_attempt_stacks(request)

    answers = await ask_processes(context, list(by_address)[:SUBTASKS_MAX], look)
    if answers.failures and not answers.found:
        problems = (
            f"TaskManager {by_address[address].task_manager_id}: {error}"[:500]
            for address, error in answers.failures.items()
        )
        raise UnavailableError("; ".join(problems))
    return list(answers.found.values())


def _back_pressure(vertex: ArchivedVertex, now: int) -> schema.BackPressure:
    running = [one for one in vertex.subtasks if _runs(one)]
    if not running:
        return {"status": "deprecated"}
    subtasks = [_back_pressure_of(one) for one in running]
    level = _level(max(one["ratio"] for one in subtasks))
    return {
        "status": _OK,
        "backpressureLevel": level,
        "backpressure-level": level,
        "end-timestamp": now,
        "subtasks": subtasks,
    }


def _back_pressure_of(subtask: ArchivedSubtask) -> schema.BackPressureOfSubtask:
    """Of its slowest query: `ratio` is the share of its last batch that was beyond the interval of its trigger.

    An idle query is not busy, however long its last batch was.
    """
    timed = [one for one in subtask.current.streams if one.interval_millis and one.trigger_millis]
    active = [one for one in timed if not one.is_idle]
    ratio = max((max(0.0, 1 - one.interval_millis / one.trigger_millis) for one in active), default=0.0)
    idle = 0.0 if timed else 1.0  # one without an interval looks for data all the time
    busy = max((min(1.0, one.trigger_millis / one.interval_millis) for one in active), default=idle)
    return {
        "subtask": subtask.index,
        "attempt-number": subtask.current.attempt,
        "backpressureLevel": _level(ratio),
        "backpressure-level": _level(ratio),
        "ratio": round(ratio, 3),
        "idleRatio": round(1 - busy, 3),
        "busyRatio": round(busy, 3),
    }


def _level(ratio: float) -> str:
    """In Flink's words and bounds."""
    return _OK if ratio <= _LOW else "low" if ratio <= _HIGH else "high"

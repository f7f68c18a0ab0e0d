"""GET /jobs/:id/spark: what Spark does for a job, live from the JVMs of its TaskManagers, and what it has done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fastapi import APIRouter
from fastapi.responses import Response

from runtime.common.ids import ExecutionAttemptId, parse_job_id
from runtime.executiongraph.archived import ArchivedExecution, ArchivedExecutionGraph, ArchivedVertex
from runtime.gateways.spark_work import QUERIES_MAX, STAGES_LIVE_MAX, SparkQuery, SparkWork
from runtime.gateways.task_executor import ATTEMPTS_LOOKED_AT_MAX, AttemptSparkRequest, AttemptSparkResponse
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.answers import JsonAnswer
from runtime.rest.asking import ask_processes
from runtime.rest.bodies import spark_bodies
from runtime.rest.bodies.schema import spark as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.jobs import archived_graph
from runtime.rest.routes.log_places import LogPlaces

_NAMED_MAX = 5
_KEY = re.compile(r"[0-9a-f]{0,64}")


@dataclass(slots=True)
class _Attempt:
    vertex: ArchivedVertex
    subtask: int
    attempt: ArchivedExecution
    work: SparkWork | None
    queries: tuple[SparkQuery, ...] = ()
    environment: str | None = None


@dataclass(slots=True)
class _Look:
    """What was found of one job. `left_out`: attempts that run and were not asked."""

    attempts: list[_Attempt]
    problems: list[str] = field(default_factory=list)
    left_out: int = 0

    def by_address(self, places: LogPlaces, *, has_plans: bool) -> dict[str, dict[ExecutionAttemptId, _Attempt]]:
        """Whom to ask: of what runs, and with `has_plans` of what has ended and used Spark."""
        groups: dict[str, dict[ExecutionAttemptId, _Attempt]] = {}
        room = ATTEMPTS_LOOKED_AT_MAX
        for one in sorted(self.attempts, key=lambda one: one.attempt.state.is_terminal):
            is_running = not one.attempt.state.is_terminal
            if not one.attempt.task_manager_id or not (is_running or (has_plans and one.work is not None)):
                continue
            address = places.address(one.attempt)
            if not room or address is None:
                self.left_out += is_running
                continue
            room -= 1
            groups.setdefault(address, {})[ExecutionAttemptId.parse(one.attempt.attempt_id)] = one
        return groups


def spark_router(context: RestContext) -> APIRouter:
    """The route of a job's Spark."""
    router = authorized_router(context, tags=["jobs"])

    @router.get("/jobs/{job_id}/spark", responses=answers(schema.SparkOfJob))
    async def spark(job_id: str, plans: bool = False) -> Response:  # noqa: FBT001, FBT002 - a query parameter
        """Stages of each attempt that has used Spark; with `plans` queries too, as long as the JVM keeps them."""
        graph = await archived_graph(context, parse_job_id(job_id))
        look = _Look(list(_attempts(graph)))
        places = LogPlaces(context.components.resource_manager.task_managers())
        await _ask(context, look, look.by_address(places, has_plans=plans), has_plans=plans)
        body: schema.SparkOfJob = {
            "now": context.clock.epoch_millis(),
            "attempts": [
                spark_bodies.of_attempt(one.vertex, one.subtask, one.attempt, one.work, one.queries, one.environment)
                for one in look.attempts
                if one.work is not None
            ],
            "left-out": look.left_out,
            "problems": look.problems,
        }
        return JsonAnswer(body)

    return router


def _attempts(graph: ArchivedExecutionGraph) -> Iterator[_Attempt]:
    for vertex in graph.vertices:
        for subtask in vertex.subtasks:
            for attempt in (*subtask.prior, *subtask.concurrent, subtask.current):
                yield _Attempt(vertex, subtask.index, attempt, attempt.spark_work)


async def _ask(
    context: RestContext, look: _Look, groups: dict[str, dict[ExecutionAttemptId, _Attempt]], *, has_plans: bool
) -> None:
    async def ask(address: str) -> AttemptSparkResponse:
        request = AttemptSparkRequest(tuple(groups[address]), has_plans)
        return await context.task_executor(address).request_attempt_spark(request)

    answers = await ask_processes(context, groups, ask)
    for address, error in answers.failures.items():
        message = f"TaskManager {_name(groups[address])} does not say what its Spark does: {error}"
        look.problems.append(message[:500])
    for address, answer in answers.found.items():
        _take(look, groups[address], answer)


def _take(look: _Look, asked: dict[ExecutionAttemptId, _Attempt], answer: AttemptSparkResponse) -> None:
    for told in answer.found:
        one = asked.get(told.attempt_id)
        if one is None or len(told.work.stages) > STAGES_LIVE_MAX:
            continue  # R52: nobody has asked for it
        if not one.attempt.state.is_terminal:
            one.work = told.work
        one.queries = told.queries[:QUERIES_MAX]
        if told.environment is not None and _KEY.fullmatch(told.environment):
            one.environment = told.environment
    silent = [asked[one] for one in dict.fromkeys(answer.unanswered) if one in asked]
    if silent:
        names = ", ".join(f"{one.vertex.name} {one.subtask}"[:80] for one in silent[:_NAMED_MAX])
        more = f" and {len(silent) - _NAMED_MAX} more" if len(silent) > _NAMED_MAX else ""
        message = f"Spark of TaskManager {_name(asked)} has not said in time what it does for {names}{more}"
        look.problems.append(message)


def _name(asked: dict[ExecutionAttemptId, _Attempt]) -> str:
    return next(iter(asked.values())).attempt.task_manager_id

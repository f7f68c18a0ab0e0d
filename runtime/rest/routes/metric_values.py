"""Flink's routes of metrics: of jobs, vertices, subtasks and processes, with aggregates; and what processes take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from runtime.common.errors import InvalidInputError, NotFoundError, PermanentError, UnavailableError
from runtime.common.ids import parse_job_id
from runtime.common.states import JobStatus
from runtime.gateways.process import ProcessFiguresRequest, ProcessFiguresResponse, ProcessGateway
from runtime.gateways.resource_manager import TaskManagerInfo
from runtime.rest.access.authorized_routes import authorized_router
from runtime.rest.access.sign_in import principal_of
from runtime.rest.answers import JsonAnswer
from runtime.rest.asking import ask_processes
from runtime.rest.bodies import metric_values as values
from runtime.rest.bodies.schema import usage as schema
from runtime.rest.context import RestContext
from runtime.rest.openapi import answers
from runtime.rest.routes.jobs import archived_graph, seen
from runtime.rest.routes.vertices import find_subtask, find_vertex

TASK_MANAGERS_MAX = 200
"""So many TaskManagers are asked for one answer."""
LEFT_OUT = "x-flinklike-left-out"
_LEFT_OUT_SHOWN_MAX = 20
_NAME_SHOWN_MAX = 120
_RANGE_LENGTH_MAX = 40

Get = Annotated[str | None, Query(description="names with commas; without it names are listed")]
Agg = Annotated[str | None, Query(description="min, max, sum, avg, skew")]


def metric_values_router(context: RestContext) -> APIRouter:
    """Before the routes of jobs, vertices and TaskManagers: `metrics` is no id."""
    router = authorized_router(context, tags=["metrics"])
    _add_jobs(router, context)
    _add_vertices(router, context)
    _add_processes(router, context)
    return router


def _add_jobs(router: APIRouter, context: RestContext) -> None:
    now = context.clock.epoch_millis

    @router.get("/jobs/metrics", responses=answers(schema.AggregatedMetrics))
    async def of_jobs(request: Request, get: Get = None, agg: Agg = None, jobs: str | None = None) -> Response:
        """Aggregates over running jobs, or over those that are named."""
        wanted = values.names_in(jobs)
        summaries = seen(principal_of(request), context.dispatcher.job_summaries())
        chosen = [
            one for one in summaries if (one.status is JobStatus.RUNNING if wanted is None else one.job_id in wanted)
        ]
        each = [values.of_summary(one, now()) for one in chosen]
        return JsonAnswer(values.aggregated(each, values.names_in(get), values.names_in(agg)))

    @router.get("/jobs/{job_id}/metrics", responses=answers(schema.MetricValues))
    async def of_job(job_id: str, get: Get = None) -> Response:
        """Of one job."""
        graph = await archived_graph(context, parse_job_id(job_id))
        return JsonAnswer(values.listed(values.of_job(graph, now()), values.names_in(get)))


def _add_vertices(router: APIRouter, context: RestContext) -> None:
    below = "/jobs/{job_id}/vertices/{vertex_id}"

    @router.get(f"{below}/metrics", responses=answers(schema.MetricValues))
    async def of_vertex(job_id: str, vertex_id: str, get: Get = None) -> Response:
        """Of all subtasks, `<subtask>.<name>`."""
        vertex = await find_vertex(context, job_id, vertex_id)
        return JsonAnswer(values.listed(values.of_vertex(vertex), values.names_in(get)))

    @router.get(f"{below}/subtasks/metrics", responses=answers(schema.AggregatedMetrics))
    async def of_subtasks(
        job_id: str, vertex_id: str, get: Get = None, agg: Agg = None, subtasks: str | None = None
    ) -> Response:
        """Aggregates over subtasks, all or `subtasks=1,3,5-9`."""
        vertex = await find_vertex(context, job_id, vertex_id)
        chosen = _subtasks(subtasks, vertex.parallelism)
        each = [values.of_attempt(one.current) for one in vertex.subtasks if one.index in chosen]
        return JsonAnswer(values.aggregated(each, values.names_in(get), values.names_in(agg)))

    @router.get(f"{below}/subtasks/{{index}}/metrics", responses=answers(schema.MetricValues))
    async def of_subtask(job_id: str, vertex_id: str, index: int, get: Get = None) -> Response:
        """Of one subtask."""
        found = find_subtask(await find_vertex(context, job_id, vertex_id), index)
        return JsonAnswer(values.listed(values.of_attempt(found.current), values.names_in(get)))


def _subtasks(text: str | None, parallelism: int) -> frozenset[int]:
    """The numbers of a list of numbers and ranges. Raises InvalidInputError."""
    if text is None:
        return frozenset(range(parallelism))
    found: set[int] = set()
    for part in values.names_in(text) or ():
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (not last or last.isdecimal()) and len(part) <= _RANGE_LENGTH_MAX):
            message = f"subtasks={text[:80]}: numbers and ranges with commas, as 1,3,5-9"
            raise InvalidInputError(message)
        found.update(range(int(first), min(int(last or first), parallelism - 1) + 1))
    return frozenset(found)


def _add_processes(router: APIRouter, context: RestContext) -> None:
    @router.get("/jobmanager/metrics", responses=answers(schema.MetricValues))
    async def of_job_manager(get: Get = None) -> Response:
        """Of the leading JobManager."""
        _ = context.components
        told = await _figures(context.own_process, "the JobManager")
        return JsonAnswer(values.listed(values.of_process(told), values.names_in(get)))

    @router.get("/taskmanagers/metrics", responses=answers(schema.AggregatedMetrics))
    async def of_task_managers(get: Get = None, agg: Agg = None, taskmanagers: str | None = None) -> Response:
        """Aggregates over TaskManagers that answer, all or those that are named.

        The header `x-flinklike-left-out` names the others, and is not there when there are none.
        """
        wanted = values.names_in(taskmanagers)
        there = {one.registration.task_manager_id: one for one in context.components.resource_manager.task_managers()}
        names = list(there) if wanted is None else [*dict.fromkeys(wanted)]
        asked = [there[name] for name in names if name in there][:TASK_MANAGERS_MAX]
        told = await _figures_of(context, asked)
        each = [values.of_process(one) for one in told.values()]
        left_out = [name for name in names if name not in told]
        headers = {LEFT_OUT: _left_out(left_out, len(names))} if left_out else None
        return JsonAnswer(values.aggregated(each, values.names_in(get), values.names_in(agg)), headers=headers)

    @router.get("/taskmanagers/{task_manager_id}/metrics", responses=answers(schema.MetricValues))
    async def of_task_manager(task_manager_id: str, get: Get = None) -> Response:
        """Of one TaskManager."""
        told = await _of_task_manager(context, task_manager_id)
        return JsonAnswer(values.listed(values.of_process(told), values.names_in(get)))

    @router.get("/taskmanagers/{task_manager_id}/usage", responses=answers(schema.ProcessUsage))
    async def usage(task_manager_id: str) -> Response:
        """What its slots run and take, and heap, garbage collection and conf of its Spark."""
        return JsonAnswer(_usage(await _of_task_manager(context, task_manager_id)))


async def _of_task_manager(context: RestContext, task_manager_id: str) -> ProcessFiguresResponse:
    for one in context.components.resource_manager.task_managers():
        registration = one.registration
        if task_manager_id in {registration.task_manager_id, registration.incarnation}:
            name = f"TaskManager {registration.task_manager_id}"
            return await _figures(context.process(registration.address), name)
    message = f"TaskManager {task_manager_id[:120]} not found"
    raise NotFoundError(message)


async def _figures(process: ProcessGateway, name: str) -> ProcessFiguresResponse:
    try:
        return await process.request_figures(ProcessFiguresRequest())
    except PermanentError as error:  # of an earlier release
        message = f"{name} does not show this: {error}"
        raise UnavailableError(message) from error


async def _figures_of(context: RestContext, managers: Sequence[TaskManagerInfo]) -> dict[str, ProcessFiguresResponse]:
    """Those of the TaskManagers that answer, by their ids: others are named, and the route of each says why."""

    async def ask(address: str) -> ProcessFiguresResponse:
        return await context.process(address).request_figures(ProcessFiguresRequest())

    answers = await ask_processes(context, [one.registration.address for one in managers], ask)
    names = {one.registration.address: one.registration.task_manager_id for one in managers}
    return {names[address]: told for address, told in answers.found.items()}


def _left_out(names: Sequence[str], total: int) -> str:
    """A header, of which clients of Flink take no notice. Names come from the query, too."""
    shown = ", ".join(quote(name[:_NAME_SHOWN_MAX], safe=":._-") for name in names[:_LEFT_OUT_SHOWN_MAX])
    more = f" and {len(names) - _LEFT_OUT_SHOWN_MAX} more" if len(names) > _LEFT_OUT_SHOWN_MAX else ""
    return f"{len(names)} of {total}: {shown}{more}"


def _usage(told: ProcessFiguresResponse) -> schema.ProcessUsage:
    return {
        "cpu-time": told.cpu_millis,
        "resident": told.resident_bytes,
        "threads": told.threads,
        "open-files": told.open_files,
        "slots": [
            {
                "index": one.index,
                "attempt-id": one.attempt_id,
                "job-id": one.attempt_id.partition("_")[0],
                "memory": one.memory_bytes,
                "limit": one.limit_bytes,
            }
            for one in told.slots
        ],
        "jvms": [
            {
                "environment": one.key,
                "resident": one.resident_bytes,
                "heap-used": one.heap_used,
                "heap-committed": one.heap_committed,
                "heap-max": one.heap_max,
                "non-heap-used": one.non_heap_used,
                "threads": one.threads,
                "gc-count": one.gc_count,
                "gc-time": one.gc_millis,
                "conf": {value.key: value.value for value in one.conf},
            }
            for one in told.jvms
        ],
    }

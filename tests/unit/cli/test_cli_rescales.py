"""`flinklike rescale`: which vertex is meant, which bounds are sent, and what is shown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from runtime.common.ids import JobId
from runtime.common.states import JobType, SchedulerType
from runtime.executiongraph.archived_rescales import RescaleReason, RescaleState
from runtime.gateways.rescales import VertexBounds
from tests.kit.host.command_line import RunCommand
from tests.kit.rest.fakes import JOB
from tests.kit.rest.rescaled_jobs import VERTEX, rescales_at
from tests.kit.rest.server import RestThread
from tests.kit.rest.streaming_graphs import put_checkpoints

NAME = "read"


@pytest.fixture
def job(server: RestThread) -> JobId:
    """One of an AdaptiveScheduler, whose first vertex can be rescaled."""

    def put() -> None:
        put_checkpoints(server.dispatcher, JOB, None)
        graph = server.dispatcher.graphs[JOB]
        first = replace(graph.vertices[0], id=VERTEX, name=f"{NAME} -> orders", parallelism=3)
        server.dispatcher.graphs[JOB] = replace(
            graph,
            job_type=JobType.STREAMING,
            scheduler_type=SchedulerType.ADAPTIVE,
            rescales=rescales_at(1_700_000_000_000),
            vertices=(first,),
        )

    server.do(put)
    return JOB


@pytest.mark.parametrize(
    ("words", "lower", "upper"),
    [("orders=2", 1, 2), (f"{NAME} -> orders=3-4", 3, 4), (f"{VERTEX}=4", 1, 4)],
)
def test_bounds_of_a_vertex(
    flinklike: RunCommand, server: RestThread, job: JobId, words: str, lower: int, upper: int
) -> None:
    done = flinklike("rescale", job, words)
    assert done.code == 0, done.err
    assert [one.bounds for one in server.dispatcher.requirements] == [(VertexBounds(VERTEX, lower, upper),)]


def test_rescales_are_shown(flinklike: RunCommand, server: RestThread, job: JobId) -> None:
    done = flinklike("rescale", job)
    assert done.code == 0, done.err
    for text in (f"{NAME} -> orders", "1 to 4", "NEW_RESOURCE_AVAILABLE", "IN_PROGRESS", "0.70 s", "1 to 3"):
        assert text in done.out, done.out
    assert server.dispatcher.requirements == []
    told = json.loads(flinklike("rescale", job, "--json").out)
    assert told["resource-requirements"] == {VERTEX: {"parallelism": {"lowerBound": 1, "upperBound": 4}}}
    assert [one["rescaleAttemptId"] for one in told["rescales"]] == [3, 2, 1]


def test_a_rescale_that_failed_says_why(flinklike: RunCommand, server: RestThread, job: JobId) -> None:
    def fail() -> None:
        graph = server.dispatcher.graphs[job]
        assert graph.rescales is not None
        latest, *others = graph.rescales.history
        failed = replace(latest, state=RescaleState.FAILED, reason=RescaleReason.JOB_FAILOVER_RESTARTING)
        server.dispatcher.graphs[job] = replace(graph, rescales=replace(graph.rescales, history=(failed, *others)))

    server.do(fail)
    shown = flinklike("rescale", job).out
    assert "FAILED, JOB_FAILOVER_RESTARTING" in shown
    assert "COMPLETED, " not in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("prices=2",), "is no vertex of the job, which has 'read -> orders'"),
        (("orders",), "expected VERTEX=N or VERTEX=LOWER-UPPER"),
        (("orders=many",), "expected VERTEX=N or VERTEX=LOWER-UPPER"),
        (("orders=1234567",), "expected VERTEX=N or VERTEX=LOWER-UPPER"),
        (("orders=1", "orders=2"), "named twice"),
        (("orders=0",), "'orders=0': a vertex has 1 to 32768 subtasks"),
        (("orders=0-2",), "a vertex has 1 to 32768 subtasks"),
        (("orders=40000",), "a vertex has 1 to 32768 subtasks"),
    ],
)
def test_what_names_no_vertex_is_refused(
    flinklike: RunCommand, server: RestThread, job: JobId, words: tuple[str, ...], says: str
) -> None:
    done = flinklike("rescale", job, *words)
    assert done.code != 0
    assert says in " ".join(done.err.replace("│", " ").split())
    assert server.dispatcher.requirements == []

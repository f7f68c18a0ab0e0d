"""Splits on demand, as clients see them: numbers, and the progress of a vertex that tells none itself."""

from __future__ import annotations

from runtime.gateways.task import TaskProgress
from runtime.jobgraph.splits import NO_SPLIT
from runtime.rest.bodies.job_bodies import vertex_progress
from tests.unit.scheduler.test_split_assigner import SplitJob, running


def shown(job: SplitJob) -> tuple[str, float]:
    graph = job.core.archived()
    progress = vertex_progress(graph.vertices[0])["progress"]
    return progress["text"], progress["fraction"]


def test_a_vertex_shows_how_many_of_its_splits_are_read() -> None:
    job = running(4)
    first, second = job.readers()
    assert shown(job) == ("", 0.0)
    assert [job.take(one) for one in (first, second, second, second)] == [0, 1, 2, 3]
    assert shown(job) == ("2 of 4 splits", 0.5), "each reads one still"
    assert job.take(second) == NO_SPLIT
    job.finish(second)
    assert shown(job) == ("3 of 4 splits", 0.75)


def test_what_its_code_says_of_its_progress_goes_before() -> None:
    job = running(4)
    first, _ = job.readers()
    job.take(first)
    job.progresses(TaskProgress(first, 0.25, "page 1", 0, 0, 0, 0))
    assert shown(job) == ("page 1", 0.25)

"""A cluster of 1 000 slots and 10 queues, simulated: who has which slots at which time (docs/shares.svg)."""

from __future__ import annotations

import pytest

from tests.benchmarks.shares import LOADS, Course, simulate

pytestmark = pytest.mark.slow
TASK_SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def course() -> Course:
    """A tenth of it: 100 slots, limits and jobs."""
    return simulate(10, 10, scale=0.1, step=10.0)


def test_the_first_job_of_each_queue_begins_when_a_task_ends(course: Course) -> None:
    assert course.starts.keys() == LOADS.keys()
    assert max(course.starts.values()) < 3.0, "one of 100 tasks of 20 to 60 s ends each 0.4 s"


def test_slots_follow_the_weights_within_the_limits(course: Course) -> None:
    at = course.seconds.index(240.0)
    assert shown(course, at) == {"etl, weight 4": 57, "reports, weight 2": 28, "ml, at most 150": 15}
    at = course.seconds.index(520.0)
    held = shown(course, at)
    assert sum(held.values()) == 100
    assert (held["night, at least 200"], held["ml, at most 150"]) == (20, 15)
    assert held["etl, weight 4"] == pytest.approx(65 * 4 / 12, abs=1)
    assert held["reports, weight 2"] == pytest.approx(65 * 2 / 12, abs=1)
    assert all(held[f"user {number}"] == pytest.approx(65 / 12, abs=1) for number in range(1, 7))


def test_slots_of_queues_that_have_ended_go_to_the_others(course: Course) -> None:
    assert all(sum(shown(course, course.seconds.index(at)).values()) == 100 for at in (100.0, 300.0, 600.0, 800.0))


def shown(course: Course, at: int) -> dict[str, int]:
    return {name: figures[at] for name, figures in course.held.items() if figures[at]}

"""Options of a job about its parallelism that decide nothing are named when it is submitted."""

from __future__ import annotations

import pytest

from runtime.common.exchange import AUTO_PARALLELISM
from runtime.rest.routes.chosen_parallelism import parallelism_doubts
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex

AREA = "execution.batch.adaptive"
FACTOR, MOST, ENABLED = (
    f"{AREA}.skewed-factor",
    f"{AREA}.auto-parallelism.max-parallelism",
    f"{AREA}.auto-parallelism.enabled",
)
OF_ITS_OWN = "without effect, as each vertex of the job has a parallelism of its own"


@pytest.mark.parametrize(
    ("given", "scheduler", "is_enabled", "says"),
    [
        ({}, "Default", False, ""),
        ({FACTOR: "3", MOST: "4"}, "AdaptiveBatch", True, ""),
        ({FACTOR: "3", MOST: "4"}, "Adaptive", True, ""),
        ({FACTOR: "3", MOST: "4"}, "AdaptiveBatch", False, f"{MOST}, {FACTOR}: without effect, as {ENABLED} is false"),
        ({FACTOR: "3", ENABLED: "true"}, "AdaptiveBatch", False, ""),
        ({FACTOR: "3", ENABLED: "false"}, "AdaptiveBatch", True, f"{FACTOR}: without effect, as {ENABLED} is false"),
        ({ENABLED: "false", "parallelism.default": "3"}, "AdaptiveBatch", True, ""),
        (
            {"parallelism.default": "3"},
            "AdaptiveBatch",
            True,
            f"parallelism.default: without effect, as {ENABLED} is true",
        ),
        (
            {FACTOR: "3", ENABLED: "true"},
            "Default",
            True,
            f"{ENABLED}, {FACTOR}: without effect, as the cluster has jobm",
        ),
        ({"parallelism.default": "3"}, "Default", True, ""),
    ],
)
def test_what_decides_nothing_is_named(given: dict[str, str], scheduler: str, *, is_enabled: bool, says: str) -> None:
    inner = vertex("work", parallelism=AUTO_PARALLELISM)
    made = graph(source("read"), inner, edges=(edge("read", "work"),), configuration=given)
    doubts = parallelism_doubts(made, scheduler=scheduler, is_cluster_enabled=is_enabled)
    assert [doubt.startswith(says) for doubt in doubts] == [True] * bool(says), doubts


def test_a_job_without_such_a_vertex_chooses_nothing() -> None:
    made = graph(source("read"), configuration={FACTOR: "3"})
    assert parallelism_doubts(made, scheduler="AdaptiveBatch", is_cluster_enabled=True) == [f"{FACTOR}: {OF_ITS_OWN}"]

"""The known size of a job's output: in the job's value, else by the counters of its sinks."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_flinklike.task_instance.outlets import stated, written


def vertex(name: str, **metrics: int) -> dict[str, Any]:
    return {"id": name, "metrics": {key.replace("_", "-"): value for key, value in metrics.items()}}


def details(vertices: list[dict[str, Any]], *edges: tuple[str, str]) -> dict[str, Any]:
    nodes = [
        {"id": one["id"], "inputs": [{"id": source} for source, target in edges if target == one["id"]]}
        for one in vertices
    ]
    return {"vertices": vertices, "plan": {"nodes": nodes}}


def test_only_sinks_count() -> None:
    read = vertex("read", write_records=100, write_bytes=1000)
    left = vertex("left", write_records=10, write_bytes=100)
    right = vertex("right", write_records=5, write_bytes=50)
    found = details([read, left, right], ("read", "left"), ("read", "right"))
    assert written(found) == {"rows": 15, "bytes": 150}
    assert written(details([vertex("read", write_records=0, write_bytes=7)])) == {"bytes": 7}
    assert written(details([vertex("read", write_records=0, write_bytes=0)])) == {}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, {}),
        ([1], {}),
        ({"rows": 3, "files": 2, "other": 1}, {"rows": 3, "files": 2}),
        ({"rows": "3", "files": True, "bytes": 1.5}, {}),
    ],
)
def test_what_the_value_says(value: object, found: dict[str, int]) -> None:
    assert stated(value) == found

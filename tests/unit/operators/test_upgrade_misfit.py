"""Whether the queries of changed code go on where those of a running job are, by what the cluster says of it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from airflow_flinklike import Pipeline
from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.operators import upgrade
from runtime.common.ids import JobId

JOB = JobId("0" * 32)


def program(parallelism: int, splits: int) -> JobProgram:
    pipeline = Pipeline("orders")
    given: dict[str, Any] = {"splits": list(range(splits))} if splits else {}
    source = pipeline.stream_source("read", lambda ctx: ctx, parallelism=parallelism, **given)
    source.stream_sink("orders", lambda ctx, df: df)
    return pipeline.build()


@pytest.mark.parametrize(
    ("scheduler", "has", "wanted", "splits", "fits"),
    [
        ("Default", 4, 4, 4, True),
        ("Default", 2, 4, 4, False),
        ("Adaptive", 2, 4, 4, True),
        ("Adaptive", 1, 2, 0, False),
    ],
)
def test_state_by_split_goes_on_with_any_parallelism(
    monkeypatch: pytest.MonkeyPatch, scheduler: str, has: int, wanted: int, splits: int, *, fits: bool
) -> None:
    answers = {
        f"/jobs/{JOB}": {"schedulerType": scheduler},
        f"/jobs/{JOB}/streams": {"vertices": [{"uid": "orders", "name": "orders", "parallelism": has, "subtasks": []}]},
    }

    def told(path: str) -> Generator[Any, Any, Any]:
        yield from ()
        return answers[path]

    monkeypatch.setattr(upgrade, "get_json", told)
    operation = upgrade.misfit(JOB, program(wanted, splits), upgrade.UpgradeSettings())
    with pytest.raises(StopIteration) as ended:
        next(operation)
    assert (ended.value.value == "") is fits
    assert fits or f"parallelism {has}" in ended.value.value

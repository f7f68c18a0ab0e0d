"""Jobs that tests name by reference, in a module that a slot cannot import."""

from __future__ import annotations

from typing import Any

from airflow_flinklike import Pipeline, script_job

FACTOR = 3


def scaled(_ctx: Any) -> int:
    return FACTOR * 14


def simple(days: int = 1) -> Pipeline:
    pipeline = Pipeline("simple")
    pipeline.source("days", "jobs.code:read", splits=range(days), parallelism=2)
    return pipeline


def needs_table(table: str, **options: Any) -> Pipeline:
    return Pipeline(f"load-{table}-{options['mode']}").source("read", scaled).pipeline


built = simple(days=3)
script = script_job(__file__)
number = 5

"""Jobs of the DAGs in application_cases.py, which builds them in the cluster of each."""

from __future__ import annotations

from typing import Any

from airflow_flinklike import Pipeline


def total(count: str) -> Pipeline:
    """1..count added up, and what the job sees of its cluster."""
    pipeline = Pipeline("total")
    numbers = pipeline.source("numbers", lambda ctx: _numbers(int(count)))
    numbers.sink("sum", lambda ctx, rows: {"sum": sum(rows[0])})
    return pipeline


def _numbers(count: int) -> Any:
    print(f"adding {count} numbers")
    return list(range(1, count + 1))

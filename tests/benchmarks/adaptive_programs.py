"""A join of which one key has most of the rows, for `bench.sh adaptive`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from airflow_flinklike import Pipeline

_SECONDS_PER_ROW = 0.0005
"""What a look at another service takes for each row, as code that enriches rows waits for it."""


def read_facts(ctx: Any) -> Any:
    """Rows of which 60 % have the key 7."""
    rows = sum(ctx.splits)
    frame = ctx.spark.range(0, rows, 1, 2)
    return frame.selectExpr("if(rand(3) < 0.6, 7, cast(rand(5) * 1000 as bigint)) as k", "uuid() as t")


def read_names(ctx: Any) -> Any:
    """One row for each key."""
    return ctx.spark.range(1000).selectExpr("id as k", "concat('name-', id) as n")


def join(ctx: Any, facts: Any, names: Any) -> Any:
    """Joins, and asks another service about each row, one after the other."""

    def ask(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(len(batch) * _SECONDS_PER_ROW)
            yield batch[["k"]]

    return facts.join(names, "k").coalesce(1).mapInPandas(ask, "k bigint")


def report(ctx: Any, rows: Any) -> Any:
    """Rows that were joined."""
    return rows.count()


def skewed(rows: int, parallelism: int | None) -> Pipeline:
    """`parallelism`: a fixed one; None: chosen, with the skew divided."""
    pipeline = Pipeline("benchmark-skew")
    here = "tests.benchmarks.adaptive_programs"
    facts = pipeline.source("facts", f"{here}:read_facts", splits=[rows // 2] * 2)
    names = pipeline.source("names", f"{here}:read_names")
    if parallelism is None:
        joined = facts.hash("k", splittable=True).apply("join", f"{here}:join", names.hash("k"))
    else:
        joined = facts.hash("k").apply("join", f"{here}:join", names.hash("k"), parallelism=parallelism)
    joined.gather().sink("report", f"{here}:report")
    return pipeline

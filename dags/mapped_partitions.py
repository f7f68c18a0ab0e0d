"""Dynamic task mapping: one job for each day, all of them at once on warm slots, then one task that adds up.

Trigger it with a number of days: `airflow dags test mapped_partitions --conf '{"days": 30}'`.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, dag, task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_DAY = date(2026, 1, 1)


@task
def days_to_do(params: Any = None) -> list[str]:
    """The days, known at run time only: the inputs of the mapping."""
    return [(FIRST_DAY + timedelta(days=number)).isoformat() for number in range(int(params["days"]))]


@task.flinklike(map_index_template="{{ task.op_kwargs['day'] }}", multiple_outputs=False, retries=2)
def sales_of(spark: SparkSession, day: str, shops: int) -> dict[str, Any]:
    """One day: a job of its own, which a retry or a clear repeats alone."""
    number = date.fromisoformat(day).toordinal()
    orders = spark.range(1000).selectExpr(f"id % {shops} as shop", f"(id * {number}) % 997 as cents")
    best = orders.groupBy("shop").sum("cents").orderBy("sum(cents)", "shop", ascending=False).first()
    assert best is not None
    return {"day": day, "cents": int(orders.groupBy().sum("cents").collect()[0][0]), "best_shop": int(best["shop"])}


@task(multiple_outputs=False)
def total(sales: Any) -> dict[str, int]:
    """Reads the XComs of all mapped tasks."""
    listed = list(sales)
    return {"days": len(listed), "cents": sum(one["cents"] for one in listed)}


@dag(
    schedule=None,
    params={"days": Param(7, type="integer", minimum=1, maximum=366, title="Days")},
    max_active_tasks=16,
    tags=["flinklike"],
    doc_md=__doc__,
)
def mapped_partitions() -> None:
    """Days, a job for each, their sum."""
    total(sales_of.partial(shops=5).expand(day=days_to_do()))


mapped_partitions()

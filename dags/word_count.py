"""Counts the words of a text on a warm slot: the smallest useful DAG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import dag, task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@task.flinklike(multiple_outputs=False)
def count_words(spark: SparkSession, text: str) -> dict[str, int]:
    """The function runs on the cluster; `spark` is the slot's session, the return value becomes the XCom."""
    words = spark.createDataFrame([(word,) for word in text.lower().split()], ["word"])
    return {row["word"]: row["count"] for row in words.groupBy("word").count().collect()}


@dag(schedule=None, tags=["flinklike"])
def word_count() -> None:
    """One task."""
    count_words("to be or not to be that is the question")  # type: ignore[call-arg, arg-type]  # spark is filled in


word_count()

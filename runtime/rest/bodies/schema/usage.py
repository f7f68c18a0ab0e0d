"""Bodies of what processes take, and of metrics as Flink's clients ask for them. Sizes are bytes."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypeAliasType, TypedDict

SlotUsage = TypedDict("SlotUsage", {"index": int, "attempt-id": str, "job-id": str, "memory": int, "limit": int})
"""`attempt-id` "" where nothing runs, or what runs is not shown to the one who asks. `limit` 0: none."""

JvmUsage = TypedDict(
    "JvmUsage",
    {
        "environment": str,
        "resident": int,
        "heap-used": int,
        "heap-committed": int,
        "heap-max": int,
        "non-heap-used": int,
        "threads": int,
        "gc-count": int,
        "gc-time": int,
        "conf": dict[str, str],
    },
)
"""`environment` "" is the default one. -1: the JVM has not answered. Time in milliseconds; secrets are masked."""

ProcessUsage = TypedDict(
    "ProcessUsage",
    {
        "cpu-time": int,
        "resident": int,
        "threads": int,
        "open-files": int,
        "slots": list[SlotUsage],
        "jvms": list[JvmUsage],
    },
)


class MetricValue(TypedDict):
    """`value` only when it was asked for."""

    id: str
    value: NotRequired[str]


class AggregatedMetric(TypedDict):
    """Those of them that were asked for; none where only names are listed."""

    id: str
    min: NotRequired[float]
    max: NotRequired[float]
    avg: NotRequired[float]
    sum: NotRequired[float]
    skew: NotRequired[float]


MetricValues = TypeAliasType("MetricValues", list[MetricValue])
AggregatedMetrics = TypeAliasType("AggregatedMetrics", list[AggregatedMetric])

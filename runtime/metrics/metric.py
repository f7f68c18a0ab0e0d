"""What a metric is: its name, its kind, its labels, and who has it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MetricKind(Enum):
    """As Prometheus has them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Owner(Enum):
    """The processes that have a metric, as docs/metrics.md calls them."""

    EACH = "Every process"
    JOB_MANAGER = "JobManager"
    JOB_MASTERS = "Processes that run JobMasters"
    TASK_MANAGER = "TaskManager"


@dataclass(frozen=True, slots=True)
class Label:
    """A label with all its values; without `values` they are many, and `metrics.max-series` bounds them."""

    name: str
    values: tuple[str, ...] = ()
    meaning: str = ""


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets for what a control plane does."""
TASK_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""Buckets for what users' code does."""


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` is the whole one. `flink`: the metric of Flink that it stands for, "" for none. `buckets`: upper bounds of
    a histogram, without infinity."""

    name: str
    kind: MetricKind
    owner: Owner
    meaning: str
    labels: tuple[Label, ...] = ()
    flink: str = ""
    buckets: tuple[float, ...] = ()

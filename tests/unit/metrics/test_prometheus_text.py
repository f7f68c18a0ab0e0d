"""The text format, as the library of Prometheus reads it back; and how often it is made."""

from __future__ import annotations

import pytest

from runtime.common.clock import Clock
from runtime.metrics import table
from runtime.metrics.counted import CountedMetrics
from runtime.metrics.registry import Sample

pytest.importorskip("prometheus_client", reason="pip install -r requirements/metrics.txt")

from prometheus_client.parser import text_string_to_metric_families

from runtime.metrics.prometheus import FRESH_SECONDS, PrometheusText, text_of


class HandClock(Clock):
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def epoch_millis(self) -> int:
        return 0


def filled() -> CountedMetrics:
    metrics = CountedMetrics(100)
    metrics.counter(table.JOBS_ENDED, "FINISHED").inc(3)
    metrics.histogram(table.STORE_SECONDS, "events").observe(0.02)
    metrics.read("slots", lambda: [Sample(table.SLOTS, 2, ("FREE",)), Sample(table.BUILD_INFO, 1, ('1"\n\\', "local"))])
    return metrics


def test_what_is_written_is_read_back() -> None:
    text = text_of(filled().families()).decode()
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["flinklike_jobs_ended_total", (("state", "FINISHED"),)] == 3
    assert found["flinklike_taskmanager_slots", (("state", "FREE"),)] == 2
    assert found["flinklike_store_transaction_seconds_sum", (("kind", "events"),)] == 0.02
    assert found["flinklike_store_transaction_seconds_bucket", (("kind", "events"), ("le", "0.025"))] == 1
    assert found["flinklike_store_transaction_seconds_bucket", (("kind", "events"), ("le", "0.01"))] == 0
    assert found["flinklike_store_transaction_seconds_count", (("kind", "events"),)] == 1
    assert found["flinklike_build_info", (("component", "local"), ("version", '1"\n\\'))] == 1, "escaped"
    assert "_created" not in text


def test_who_asks_all_the_time_has_it_made_once_a_second() -> None:
    clock, metrics = HandClock(), filled()
    text = PrometheusText(metrics.families, clock)
    first = text()
    metrics.counter(table.JOBS_ENDED, "FAILED").inc()
    clock.now = FRESH_SECONDS - 0.01
    assert text() is first
    clock.now = FRESH_SECONDS
    assert b"FAILED" in text()

"""The table: names as Prometheus wants them, labels as the code has them, and docs/metrics.md as the table has it."""

from __future__ import annotations

import inspect
import re

import pytest

from runtime.common import errors
from runtime.common.states import ExecutionState
from runtime.metrics import docgen, table
from runtime.metrics.errors import error_kind
from runtime.metrics.metric import Metric, MetricKind
from runtime.rpc.service import StreamKind
from runtime.taskexecutor.core.slot_table import SlotState

ERRORS = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, errors.FlinklikeError)]
UNITS = ("_seconds", "_bytes")
FORBIDDEN_LABELS = {"job", "job_id", "job_name", "name", "vertex", "attempt", "user", "principal", "namespace"}


def metric_id(metric: Metric) -> str:
    return metric.name


def test_names_are_used_once() -> None:
    names = [metric.name for metric in table.TABLE]
    assert len(names) == len(set(names))
    assert len(names) > 30


@pytest.mark.parametrize("metric", table.TABLE, ids=metric_id)
def test_a_metric_is_called_as_prometheus_wants_it(metric: Metric) -> None:
    assert re.fullmatch(r"flinklike(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") is (metric.kind is MetricKind.COUNTER)
    assert not metric.name.endswith(("_count", "_sum", "_bucket", "_info")) or metric is table.BUILD_INFO
    assert bool(metric.buckets) is (metric.kind is MetricKind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    if metric.buckets:
        assert metric.name.endswith("_seconds")
    for unit in ("seconds", "bytes"):
        if unit in metric.name:
            assert metric.name.removesuffix("_total").endswith(unit), "the unit comes last"
    assert metric.meaning.endswith(".")


@pytest.mark.parametrize("metric", table.TABLE, ids=metric_id)
def test_its_labels_are_bounded_and_name_no_job(metric: Metric) -> None:
    for label in metric.labels:
        assert re.fullmatch(r"[a-z]+", label.name)
        assert label.name not in FORBIDDEN_LABELS
        assert label.values or label.meaning
        assert len(label.values) == len(set(label.values)) <= 20


def test_closed_sets_are_those_of_the_code() -> None:
    assert set(table.STREAM_KINDS) == {kind.name for kind in StreamKind}
    assert set(table.SLOT_STATES) == {state.value for state in SlotState}
    ends = {state.value for state in ExecutionState if state.is_terminal}
    assert set(table.TASK_OUTCOMES) == ends


@pytest.mark.parametrize("error", ERRORS, ids=lambda one: one.__name__)
def test_each_error_has_a_kind(error: type[Exception]) -> None:
    instance = error.__new__(error)
    kind = error_kind(instance)
    assert kind in table.ERROR_KINDS
    assert (kind == "bug") is issubclass(error, errors.BugError) or error is errors.FlinklikeError


def test_any_other_error_is_a_bug() -> None:
    assert error_kind(ZeroDivisionError()) == "bug"


def test_no_number_of_a_python_process_stands_for_a_heap() -> None:
    """The resident memory was said to be Flink's heap, which REST answers with that of Spark's JVMs."""
    assert [one.name for one in table.TABLE if "Memory.Heap" in one.flink] == []
    assert table.RESIDENT_BYTES.flink == ""


def test_the_page_is_fresh() -> None:
    text = docgen.PAGE.read_text(encoding="utf-8")
    assert docgen.page(text) == text, "run python -m runtime.metrics.docgen"
    assert all(f"`{metric.name}`" in text for metric in table.TABLE)

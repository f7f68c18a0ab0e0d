"""Every benchmark runs, small, and prints figures: no thresholds. Some run each time, all with --all."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as command
from tests.benchmarks.cluster import ClusterBenchmark, ScriptCluster
from tests.benchmarks.control_plane import WITHOUT_SPARK
from tests.benchmarks.measure import Report, Target, percentile
from tests.benchmarks.spark import SMALL_OPTIONS
from tests.kit.spark.spark_box import QUICK_JVM

CLUSTER = [pytest.mark.process, pytest.mark.etcd, pytest.mark.slow]
SPARK = [*CLUSTER, pytest.mark.spark, pytest.mark.timeout(1500)]
SPARK_NAMES = ("slot-memory", "spark", "start", "environments", "streaming", "stream-restarts", "adaptive")

EXPECTED: Mapping[str, tuple[str, ...]] = {
    "no-op": (
        "no-op job: per second",
        "no-op job: submit call p50",
        "no-op job: submit call p99",
        "no-op job, another lambda each: per second",
        "CPU of all processes per no-op job, another lambda each",
        "submit to FINISHED, idle cluster p50",
        "CPU of jobmanager per no-op job",
        "CPU of all processes per no-op job",
        "etcd write transactions per no-op job before FINISHED",
    ),
    "encryption": ("CPU of all processes per no-op job, TLS", "CPU of all processes: TLS by plain text"),
    "traces": ("CPU of all processes per no-op job, with a trace each", "CPU of all processes: with by without"),
    "metrics": ("CPU of all processes per no-op job, with metrics", "CPU of all processes: with by without"),
    "wide": ("subtasks per second", "submit to FINISHED p99", "CPU of all processes per subtask"),
    "running": ("JobMaster processes' RSS per job", "/jobs/overview with 20 jobs p99", "CPU of jobmaster per job"),
    "slot-memory": ("PSS of an idle slot process (of 2) p50", "CPU of a slot process"),
    "spark": ("differences of 5 pairs p50", "spark-submit / job", "CPU of taskmanager per Spark job"),
    "environments": ("first job in a new environment p50", "the next jobs there p50", "spark-submit / first job"),
    "start": ("start to ready with class archive p50", "start to ready without class archive p50", "CPU of a start"),
    "scheduler-core": ("subtasks per second, P = 1000", "CPU of a no-op job", "memory per running job"),
    "shares": ("the same behind 10 jobs in another queue", "SlotManager, 500 jobs in 10 queues", "longest wait"),
    "job-lists": ("longest hold of the loop, /jobs/overview after", "CPU of /jobs/overview of 500 jobs"),
    "commit": (
        "flinklike: 240 files",
        "FileOutputCommitter v1: its job",
        "FileOutputCommitter v2: its tasks",
    ),
    "rpc-stream": ("stream, 100 messages each way, round trip p99", "CPU of listener per stream", "unary call"),
    "speculation": (
        "a slow TaskManager, 8 tasks of 0.3 s, without speculation",
        "a slow TaskManager, 8 tasks of 0.3 s, with speculation",
        "without to with",
    ),
    "recovery": (
        "JobMaster process killed: all 4 jobs RUNNING under another one p50",
        "leading JobManager killed: REST answers p50",
        "TaskManager killed: all of its tasks run elsewhere p50",
        "etcd write transactions per no-op job before FINISHED (before: 2)",
    ),
    "dashboard": (
        "list of 60 finished and 4 running jobs: first paint p50",
        "list of 60 finished and 4 running jobs: next page p50",
        "CPU of the JobManager with 3 overviews open",
    ),
    "waiters": ("CPU of the JobManager with 20 polls for a change", "CPU of the JobManager for one change told to 20"),
    "triggers": (
        "CPU of the triggerer, 50 triggers wait",
        "CPU of the JobManager, 50 triggers wait",
        "end of a job until its trigger fires p50",
    ),
    "hostile": (
        "jobmanager, many-continuations: REST, longest",
        "jobmanager, many-continuations: gRPC, new connections, p50",
        "jobmanager, rapid-reset: not served",
        "jobmanager, rapid-reset: roles lost",
    ),
    "denials": (
        "nobody: the neighbour's job p50",
        "processes: the neighbour's job, longest",
        "log: the neighbour's job, longest",
        "deep JSON: the neighbour's job p50",
        "submits: taken",
    ),
    "airflow": (
        "empty task p50",
        "FlinklikeSubmitOperator, inline p50",
        "FlinklikeSubmitOperator, inline: above the empty task p50",
        "20 FlinklikeSubmitOperators at once, trigger to the last end",
    ),
    "soak": ("listeners, after the first third of 54 jobs", "listeners, at the end", "heap MB, at the end"),
    "streaming": (
        "submit to first batch p50",
        "cancel to the first batch of the next job under the same name p50",
        "wish to fail to the first batch of the next attempt p50",
        "savepoint of a query of 1 000 rows/s with state p50",
        "longest time between two batches of it, in five seconds without a savepoint p50",
        "longest time between two batches of it, while a savepoint is made p50",
        "stop with a savepoint to the first batch of the job that begins from it p50",
        "plain Spark, warm session: stop to the first batch of the next start p50",
        "plain Spark, warm session, 1 000 rows/s with state: stop, copy of the checkpoint",
        "CPU of the TaskManager with 2 idle queries that look each second",
    ),
    "stream-restarts": ("restarts of a query with state",),
    "adaptive": (
        "TPC-H 0.01, parallelism chosen",
        "TPC-H 0.01, chosen to best fixed",
        "join, static hashing to chosen",
    ),
    "etcd-writes": ("guarded put, grouped, 16 callers: per second", "no-op job, 1 callers: etcd transactions"),
}
MARKS: Mapping[str, list[pytest.MarkDecorator]] = {
    **dict.fromkeys(SPARK_NAMES, SPARK),
    "soak": SPARK,
    "triggers": [*CLUSTER, pytest.mark.airflow],
    "scheduler-core": [pytest.mark.slow],
    "job-lists": [pytest.mark.slow],
    "rpc-stream": [pytest.mark.slow],
    "airflow": [*SPARK, pytest.mark.airflow],
}
EACH_TIME = ("no-op", "etcd-writes")
"""One with a cluster and one with etcd; `tests/unit/scripts` runs two more as users do. The others are `extended`: what
they measure has tests of its own, and they take minutes."""
MAY_BE_ZERO = (
    *("CPU of", "etcd writes per minute", "files written", "differences", "RSS", "above the", "storage MB"),
    *("not served", "roles lost", "terms lost", "TaskManagers lost", "more than before", ": CPU"),
)
"""CPU is counted in ticks of 10 ms; the difference of two times and the growth of a heap have no sign of their own;
Spark may have dropped all that its storage held."""


@pytest.fixture(scope="module")
def plain_cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(WITHOUT_SPARK) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spark_cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster({**SMALL_OPTIONS, **QUICK_JVM}, class_archive=class_archive) as cluster:
        yield cluster


SHARED = {
    **dict.fromkeys(("no-op", "wide", "hostile", "denials"), "plain_cluster"),
    **dict.fromkeys(SPARK_NAMES, "spark_cluster"),
}


def _case(name: str) -> object:
    extended = [] if name in EACH_TIME else [pytest.mark.extended]
    return pytest.param(name, marks=[*MARKS.get(name, CLUSTER), *extended])


@pytest.mark.parametrize("name", [_case(name) for name in command.BENCHMARKS])
def test_a_small_benchmark_gives_its_figures(name: str, request: pytest.FixtureRequest) -> None:
    benchmark = command.BENCHMARKS[name]
    if name in SHARED:
        assert isinstance(benchmark, ClusterBenchmark)
        report = Report(benchmark.title)
        benchmark.measure(request.getfixturevalue(SHARED[name]), report, small=True)
    else:
        report = benchmark(small=True)
    for start in EXPECTED[name]:
        assert any(row.name.startswith(start) for row in report.rows), (start, report.table())
    assert len({row.name for row in report.rows}) == len(report.rows)
    for row in report.rows:
        assert math.isfinite(row.value), row
        assert row.value > 0 or any(part in row.name for part in MAY_BE_ZERO), row
    assert report.name in report.table()
    assert not [note for note in report.notes if note.startswith("GREW")], report.table()


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [(1, 50, 1), (2, 50, 1), (3, 50, 2), (100, 50, 50), (100, 99, 99), (101, 99, 100), (10, 100, 10), (5, 0, 1)],
)
def test_percentiles_are_nearest_rank(count: int, percent: float, expected: float) -> None:
    assert percentile(range(count, 0, -1), percent) == expected


def test_no_values_have_no_percentile() -> None:
    assert math.isnan(percentile([], 50))


def test_cpu_is_shown_by_role_and_in_sum_with_its_targets() -> None:
    report = Report("x")
    report.add_cpu("job", {"a": 1.0, "b": 2.0}, {"a": 1.5, "b": 2.25, "c": 9.0}, 10, {"a": Target("8", "2")})
    rows = [(row.name, row.value, row.now, row.goal) for row in report.rows]
    assert rows == [
        ("CPU of a per job", 50.0, "8", "2"),
        ("CPU of b per job", 25.0, "", ""),
        ("CPU of all processes per job", 75.0, "", ""),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name one of no-op"),
        (["no-op", "nope"], "no benchmark nope"),
        (["no-op", "--json"], "expected one argument"),
        (["--al"], "unrecognized arguments: --al"),
    ],
)
def test_a_wrong_command_line_says_so(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parse(arguments)
    assert said in capsys.readouterr().err


def test_what_was_measured_before_a_failure_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def good(*, small: bool) -> Report:
        report = Report("good")
        report.add("figure", float(small), "ms")
        return report

    def bad(*, small: bool) -> Report:
        raise ArithmeticError(small)

    monkeypatch.setattr(command, "BENCHMARKS", {"good": good, "bad": bad})
    file = tmp_path / "figures.json"
    with pytest.raises(ArithmeticError):
        command.main(["--all", "--small", "--json", str(file)])
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["rows"] == [{"name": "figure", "value": 1.0, "unit": "ms", "now": "", "goal": ""}]
    assert "== good" in capsys.readouterr().out

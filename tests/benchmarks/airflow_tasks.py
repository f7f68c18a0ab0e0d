"""Tasks of a real Airflow, start to end: ours, those of the Spark provider, and one that does nothing.

All of them in one Airflow, in turns: what else the machine does meets all alike. Each kind has DAG files of its own, as
every task process imports its DAG file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.measure import Report, Target, percentile
from tests.benchmarks.spark import OVERHEAD_OPTIONS
from tests.kit.airflow.pair import AirflowPair
from tests.kit.airflow.rest import AirflowRest, Run
from tests.kit.host.levels import reached
from tests.kit.spark.plain_spark import plain_spark_environment

DAGS = Path(__file__).parent / "airflow_dags"
FLOOR = "empty task"
INLINE = "FlinklikeSubmitOperator, inline"
SUBMIT = "SparkSubmitOperator"
OURS = {FLOOR: "empty", INLINE: "inline", "FlinklikeSubmitOperator, hybrid": "hybrid", "@task.flinklike": "decorated"}
PEERS = {SUBMIT: "spark_submit", "@task.pyspark": "pyspark"}
AT_ONCE = {
    "empty tasks": "empty_20",
    "FlinklikeSubmitOperators": "inline_20",
    "FlinklikeSubmitOperators, hybrid,": "hybrid_20",
}
PROVIDER = "airflow.providers.apache.spark"
INSTALL = (
    "SparkSubmitOperator and @task.pyspark are not measured, as their provider is not installed: "
    "python -m pip install --no-deps -r requirements/peers.txt"
)
_SCRIPT = """
from pyspark.sql import SparkSession
print(SparkSession.builder.getOrCreate().range(1000).count())
"""
_ASK_EVERY = 0.25
_TIMEOUT = 600.0


def airflow_tasks(*, small: bool) -> Report:
    """`spark.range(1000).count()` as a task."""
    report = Report("Airflow tasks")
    has_peers = has_provider()
    files = [DAGS / "floor.py", DAGS / "flinklike.py", *([DAGS / "peers.py"] if has_peers else [])]
    environment = {
        "JAVA_HOME": plain_spark_environment()["JAVA_HOME"],
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
    }
    with TemporaryDirectory(prefix="flinklike-bench-") as directory:
        folder = Path(directory)
        script = folder / "count.py"
        script.write_text(_SCRIPT)
        with AirflowPair(folder, files=files, options=OVERHEAD_OPTIONS, environment=environment) as pair:
            bench = _Bench(pair.rest, {"script": str(script)})
            found = bench.in_turns(OURS, 2 if small else 12, warm_up=1 if small else 3)
            peers = bench.in_turns(PEERS, 1 if small else 5, warm_up=1) if has_peers else {}
            _add_single(report, {**found, **peers})
            for name, dag_id in AT_ONCE.items():
                bench.add_at_once(report, name, dag_id, rounds=1 if small else 3)
    if not has_peers:
        report.note(INSTALL)
    return report


class _Bench:
    """Runs DAGs in an Airflow that does nothing else."""

    def __init__(self, rest: AirflowRest, conf: Mapping[str, Any]) -> None:
        self._rest = rest
        self._conf = conf
        self._runs = 0

    def in_turns(self, kinds: Mapping[str, str], runs: int, *, warm_up: int) -> dict[str, list[float]]:
        """Seconds of the task, for each run of each kind."""
        found: dict[str, list[float]] = {name: [] for name in kinds}
        for dag_id in kinds.values():
            self._rest.wait_for_dag(dag_id)
        for number in range(warm_up + runs):
            for name, dag_id in kinds.items():
                seconds = _seconds(self._run(dag_id).task())
                if number >= warm_up:
                    found[name].append(seconds)
        return found

    def add_at_once(self, report: Report, name: str, dag_id: str, *, rounds: int) -> None:
        """A run of 20 tasks that may all start at once."""
        self._rest.wait_for_dag(dag_id)
        wholes, tasks = list[float](), list[float]()
        for _ in range(rounds):
            begin = time.time()
            run = self._run(dag_id)
            instances = self._rest.ask("GET", f"/dags/{dag_id}/dagRuns/{run.run_id}/taskInstances")["task_instances"]
            assert len(instances) == 20, len(instances)
            tasks += [_seconds(one) for one in instances]
            wholes.append(max(_moment(one["end_date"]) for one in instances) - begin)
        asked = Target() if dag_id.startswith("empty") else Target("25")
        report.add(f"20 {name} at once, trigger to the last end", percentile(wholes, 50), "s", asked)
        report.add_distribution(f"a task of 20 {name} at once", tasks, "s")

    def _run(self, dag_id: str) -> Run:
        """A run that has succeeded. It is asked for seldom: whoever asks takes the API server's time."""
        self._runs += 1
        run = self._rest.trigger(dag_id, f"run_{self._runs}", self._conf)
        state = reached(lambda: _ended(run), f"{dag_id} has ended", timeout=_TIMEOUT, every=_ASK_EVERY)
        assert state == "success", run.story()
        return run


def _ended(run: Run) -> str:
    state = run.state()
    return state if state in {"success", "failed"} else ""


def _add_single(report: Report, found: Mapping[str, Sequence[float]]) -> None:
    for name, values in found.items():
        report.add_distribution(name, values, "s")
    floor = percentile(found[FLOOR], 50)
    for name in OURS:
        if name != FLOOR:
            asked = Target("0.3", "0.2") if name == INLINE else Target()
            report.add(f"{name}: above the {FLOOR} p50", percentile(found[name], 50) - floor, "s", asked)
    if SUBMIT in found:
        ratio = percentile(found[SUBMIT], 50) / percentile(found[INLINE], 50)
        report.add("SparkSubmitOperator / FlinklikeSubmitOperator", ratio, "x", Target("30"))


def has_provider() -> bool:
    """True if the operators that we compare with are there."""
    try:
        return find_spec(PROVIDER) is not None
    except ModuleNotFoundError:
        return False


def _seconds(instance: Mapping[str, Any]) -> float:
    return _moment(instance["end_date"]) - _moment(instance["start_date"])


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()

"""A team's DAG of 25 SparkSubmitOperator tasks, and the same DAG after `flinklike migrate --write`, in one Airflow.

Both write a file of results per task; the benchmark fails where these differ. CPU is that of the whole machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from runtime.common.spark_conf import normal_value
from tests.benchmarks.airflow_tasks import INSTALL, has_provider
from tests.benchmarks.measure import Report, Target
from tests.benchmarks.spark import START_OPTIONS, class_archives
from tests.kit.airflow.pair import AirflowPair
from tests.kit.cluster.script_cluster import ROOT
from tests.kit.host.levels import reached
from tests.kit.spark.plain_spark import plain_spark_environment

TEAM = Path(__file__).parent / "team"
TASKS = 25
BEFORE, AFTER = "team", "team_moved"
DATES = {"first": "2026-01-01T00:00:00Z", "again": "2026-01-02T00:00:00Z", "before": "2026-01-02T00:00:00Z"}
"""By run: a DAG has one run for a date."""
_OPTIONS = {**START_OPTIONS, "taskmanager.memory.spark.total": "6 gb"}
_TIMEOUT = 3600.0
_ASK_EVERY = 0.5
_COMPILE = """
import sys, zipfile
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").getOrCreate()
target, *sources = sys.argv[1:]
units = spark._jvm.java.util.HashMap()
resources = spark._jvm.org.codehaus.commons.compiler.util.resource
compiler = spark._jvm.org.codehaus.janino.Compiler()
compiler.setIClassLoader(spark._jvm.org.codehaus.janino.ClassLoaderIClassLoader(
    spark._jvm.java.lang.ClassLoader.getSystemClassLoader()))
made = spark._jvm.java.util.HashMap()
compiler.setClassFileCreator(resources.MapResourceCreator(made))
array = spark.sparkContext._gateway.new_array(resources.Resource, len(sources))
for place, source in enumerate(sources):
    array[place] = resources.StringResource(source, open(source).read())
compiler.compile(array)
with zipfile.ZipFile(target, "w") as jar:
    for name in made.keySet():
        jar.writestr(name, bytes(made.get(name)))
"""


def migration(*, small: bool) -> Report:
    """One run of each DAG; with `small` only the moved one."""
    report = Report("A DAG of 25 Spark tasks")
    if not has_provider():
        report.note(INSTALL)
        return report
    with TemporaryDirectory(prefix="flinklike-bench-") as directory:
        home = Path(directory)
        files = _prepare(home)
        spark = {"conn_type": "spark", "host": "local[2]"}
        environment = {
            "JAVA_HOME": plain_spark_environment()["JAVA_HOME"],
            "TEAM_HOME": str(home),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
        }
        with AirflowPair(home, files=files, options=_OPTIONS, environment=environment) as pair:
            archives = pair.cluster.run / "run" / "cds"
            reached(lambda: class_archives(archives), f"a class archive in {archives}", timeout=600)
            first = _run(pair, report, AFTER, "moved, on a cluster that has just started", home / "first")
            again = _run(pair, report, AFTER, "moved, the next night", home / "again")
            _compare(first, again)
            if not small:
                before = _run(pair, report, BEFORE, "with spark-submit", home / "before")
                _compare(before, again)
                _add_ratios(report)
    return report


def _prepare(home: Path) -> list[Path]:
    """The team's files below `home`. Returns its DAG file as it was, and moved by the command that users have."""
    shutil.copytree(TEAM / "jobs", home / "jobs")
    (home / "prices.csv").write_text("key,price\n1,10\n2,20\n")
    (home / "names.csv").write_text("key,name\n1,one\n2,two\n")
    (home / "night.properties").write_text("spark.sql.session.timeZone=Asia/Tokyo\nspark.team.mode=night\n")
    with zipfile.ZipFile(home / "bundle.zip", "w") as bundle:
        bundle.writestr("words.txt", "a b c a")
    (home / "compile.py").write_text(_COMPILE)
    sources = [str(TEAM / f"{name}.java") for name in ("Rules", "Totals")]
    command = [sys.executable, str(home / "compile.py"), str(home / "totals.jar"), *sources]
    subprocess.run(command, check=True, env=plain_spark_environment(), cwd=home)
    text = (TEAM / "team.dag").read_text()
    before, after = home / "team.py", home / "team_moved.py"
    before.write_text(text)
    after.write_text(text.replace(f'dag_id="{BEFORE}"', f'dag_id="{AFTER}"'))
    subprocess.run(
        [str(ROOT / "bin" / "flinklike"), "migrate", "--write", str(after)], check=True, env=dict(os.environ)
    )
    assert "SparkSubmitOperator(" not in after.read_text().replace("FlinklikeSubmitOperator(", "")
    return [before, after]


def _run(pair: AirflowPair, report: Report, dag_id: str, name: str, out: Path) -> dict[str, Any]:
    """A run that has succeeded, and what its tasks have written."""
    out.mkdir()
    pair.rest.wait_for_dag(dag_id)
    begin, busy = time.perf_counter(), _busy_seconds()
    run = pair.rest.trigger(dag_id, out.name, {"out": str(out)}, logical_date=DATES[out.name])

    def ended() -> str:
        state = run.state()
        return state if state in {"success", "failed"} else ""

    state = reached(ended, f"{dag_id} has ended", timeout=_TIMEOUT, every=_ASK_EVERY)
    wall, cpu = time.perf_counter() - begin, _busy_seconds() - busy
    print(f"{name}: {wall:.0f} s, {cpu:.0f} s of CPU", file=sys.stderr, flush=True)
    report.add(f"{name}: wall time", wall, "s")
    report.add(f"{name}: CPU", cpu, "s")
    states = _states(pair, dag_id, out.name)
    assert state == "success", (states, [run.at(one).log() for one in _failed(states)])
    assert len(states) == TASKS, states
    return {file.name: json.loads(file.read_text()) for file in out.glob("*.json")}


def _states(pair: AirflowPair, dag_id: str, run_id: str) -> dict[str, str]:
    found = pair.rest.ask("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
    return {f"{one['task_id']} {one['map_index']}": one["state"] for one in found}


def _failed(states: dict[str, str]) -> list[str]:
    """Tasks, not mapped, that have failed by themselves: the first two, whose logs say why."""
    return [name.removesuffix(" -1") for name, state in states.items() if state == "failed" and name.endswith(" -1")][
        :2
    ]


def _compare(one: dict[str, Any], other: dict[str, Any]) -> None:
    """1g and 1024m are the same: an environment has the text of whoever was first."""
    names = {*one, *other}
    differing = {
        name: (one.get(name), other.get(name)) for name in names if _meant(one.get(name)) != _meant(other.get(name))
    }
    assert len(one) == TASKS, sorted(one)
    assert not differing, differing


def _meant(found: Any) -> Any:
    values = found if isinstance(found, dict) else {}
    return {key: normal_value(one) if isinstance(one, str) else one for key, one in values.items()} or found


def _add_ratios(report: Report) -> None:
    value = {row.name: row.value for row in report.rows}
    for what, target in (("wall time", Target("3", "5")), ("CPU", Target("3", "5"))):
        ratio = value[f"with spark-submit: {what}"] / value[f"moved, the next night: {what}"]
        report.add(f"{what}: spark-submit / moved", ratio, "x", target)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)

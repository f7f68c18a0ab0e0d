"""Files that `flinklike migrate` has rewritten are DAG files; `--load` counts the tasks that Airflow finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.migrate.analysis import analyse

ROOT = Path(__file__).resolve().parents[2]
STYLES = ROOT / "tests" / "unit" / "migrate" / "dags"

_OPERATOR = '''
from airflow.sdk import BaseOperator


class SparkSubmitOperator(BaseOperator):
    """Keeps its parameters as the provider's operator does."""

    def __init__(self, *, application="", conf=None, conn_id="spark_default", driver_memory=None, proxy_user=None,
                 application_args=None, **kwargs):
        super().__init__(**kwargs)
        self.application = application
        self.conf = conf
        self._conn_id = conn_id
        self._driver_memory = driver_memory
        self._proxy_user = proxy_user
        self.application_args = application_args
'''

_LIBRARY = """
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator


class Special(SparkSubmitOperator):
    pass


def made(name):
    return SparkSubmitOperator(task_id=f"made_{name}", application="a.py")
"""

_DAG = """
from datetime import datetime

from airflow.sdk import DAG
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from library import Special, made

print("noise")
SIZES = [("a", "2g"), ("b", "4g"), ("c", "2g")]
with DAG("loaded", schedule="@hourly", start_date=datetime(2024, 1, 1)):
    for name, memory in SIZES + []:
        SparkSubmitOperator(task_id=f"load_{name}", application="a.py", driver_memory=memory, conn_id="spark")
    made("x") >> made("y")
    Special(task_id="special", application="a.py")
    for user in (None, "etl"):
        SparkSubmitOperator(task_id=f"as_{user}", application="a.py", proxy_user=user and user)
    SparkSubmitOperator.partial(task_id="mapped", application="a.py").expand(application_args=[["1"], ["2"]])
    if len(SIZES) > 5:
        SparkSubmitOperator(task_id="never", application="a.py")
"""


@pytest.mark.parametrize(
    ("style", "tasks"),
    [
        ("03_taskflow_pyspark", 2),
        ("04_pyspark_config_kwargs", 1),
        ("05_default_args_connection", 2),
        ("06_loop", 3),
        ("07_factory_function", 2),
        ("10_task_group_decorator", 6),
        ("11_mapped_expand", 2),
        ("13_jinja", 2),
        ("14_spread_common", 2),
        ("26_try_import", 1),
        ("27_local_import", 1),
        ("32_comprehension", 5),
        ("38_method_and_lambda", 2),
    ],
)
def test_a_rewritten_file_is_loaded_by_airflow(style: str, tasks: int, tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    file = tmp_path / f"{style}.py"
    file.write_text((STYLES / f"{style}.dag").read_text())
    report = analyse(file)
    report.settle()
    report.write()
    assert report.is_written
    bag = DagBag(str(file), bundle_path=tmp_path, bundle_name="migrated")
    assert bag.import_errors == {}
    (dag,) = bag.dags.values()
    ours = [task for task in dag.tasks if "linklike" in task.task_type]
    assert len(ours) == tasks
    for task in ours:
        assert getattr(task, "flinklike_conn_id", "flinklike_default") == "flinklike_default"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """DAG files, beside a provider that keeps parameters only."""
    operators = tmp_path / "site" / "airflow" / "providers" / "apache" / "spark" / "operators"
    operators.mkdir(parents=True)
    (operators / "spark_submit.py").write_text(_OPERATOR)
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "library.py").write_text(_LIBRARY)
    (dags / "loaded.py").write_text(_DAG)
    return dags


def migrate(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(folder.parent / "site")])
    command = [sys.executable, "-m", "airflow_flinklike.cli", "migrate", str(folder), "--report", "json", *options]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=200
    )


def rows(done: subprocess.CompletedProcess[str]) -> list[tuple[Any, ...]]:
    body = json.loads(done.stdout)
    return [
        (task["task_id"], task["count"], task["verdict"], len(task["environments"]))
        for file in body["files"]
        for task in file["tasks"]
    ]


def test_loading_counts_the_real_tasks_with_their_values(folder: Path) -> None:
    done = migrate(folder, "--load")
    assert done.returncode == 0, done.stderr
    assert "noise" in done.stderr
    assert rows(done) == [
        ("Special", 0, "stays", 0),
        ("f'made_{name}'", 2, "moves", 0),
        ("f'load_{name}'", 2, "environment", 1),
        ("load_b", 1, "environment", 1),
        ("special", 1, "stays", 0),
        ("f'as_{user}'", 2, "stays", 0),
        ("mapped", 2, "moves", 0),
        ("never", 0, "moves", 0),
    ]
    assert json.loads(done.stdout)["summary"]["is_at_least"] is False


_SAME = """
from datetime import datetime
from pathlib import Path

from airflow.sdk import DAG, TaskGroup
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

SCRIPT = str(Path(__file__).parent / "jobs" / "etl.py")


class Ours(SparkSubmitOperator):
    template_fields = (*SparkSubmitOperator.template_fields, "application")


with DAG("first", start_date=datetime(2024, 1, 1), schedule="@daily"):
    SparkSubmitOperator(task_id="same", application="a.py")
    SparkSubmitOperator(task_id="script", application=SCRIPT)
    SparkSubmitOperator(task_id="dropped", application="a.py", conf={"spark.local.dir": "/data"})
with DAG("second", start_date=datetime(2024, 1, 1), schedule="@daily"):
    SparkSubmitOperator(task_id="same", application="a.py", driver_memory="3g")
    with TaskGroup("group", default_args={"driver_memory": "2g"}):
        SparkSubmitOperator.partial(task_id="mapped", application="a.py").expand(application_args=[["1"], ["2"]])
"""


def test_loading_judges_as_the_source_does(folder: Path) -> None:
    """Also calls with one id, conf of a script, and what default_args give to mapped tasks."""
    (folder / "loaded.py").unlink()
    (folder / "library.py").unlink()
    (folder / "jobs").mkdir()
    (folder / "jobs" / "etl.py").write_text("SparkSession.builder.config('spark.serializer', 'K').getOrCreate()\n")
    (folder / "same.py").write_text(_SAME)
    plain, loaded = (json.loads(migrate(folder, *options).stdout) for options in ((), ("--load",)))
    tasks = [[task | {"dags": []} for file in body["files"] for task in file["tasks"]] for body in (plain, loaded)]
    assert tasks[0] == [{**task, "task_id": task["task_id"].removeprefix("group.")} for task in tasks[1]]
    assert [task["count"] for task in tasks[1]] == [0, 1, 1, 1, 1, 2]
    assert [task["verdict"] for task in tasks[1]] == [
        "stays",
        "moves",
        "environment",
        "moves",
        "environment",
        "environment",
    ]


def test_a_file_that_airflow_cannot_import_is_a_problem(folder: Path) -> None:
    (folder / "broken.py").write_text("# airflow DAG\nimport nothing_of_this_name\n")
    (folder / "ends.py").write_text("# airflow DAG\nraise SystemExit(0)\n")
    done = migrate(folder, "--load")
    assert done.returncode == 1
    problems = {Path(file["path"]).name: file["problem"] for file in json.loads(done.stdout)["files"]}
    assert "No module named 'nothing_of_this_name'" in problems["broken.py"]
    assert problems["ends.py"].startswith("Airflow cannot import it: ")
    assert problems["loaded.py"] == ""

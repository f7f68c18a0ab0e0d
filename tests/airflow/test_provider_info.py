"""Provider info, entry points, imports, the connection form, and what parsing a DAG costs."""

import functools
import importlib
import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # no stubs installed
import pytest

from airflow_flinklike.hooks.flinklike import FlinklikeHook
from airflow_flinklike.provider_info import get_provider_info

ROOT = Path(__file__).resolve().parents[2]
INFO = get_provider_info()


def load(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def schema(name: str) -> Any:
    import airflow

    return json.loads((Path(airflow.__path__[0]) / name).read_text())


def test_it_follows_airflows_schema() -> None:
    jsonschema.validate(INFO, schema("provider_info.schema.json"))


def test_the_connection_follows_the_stricter_schema_of_authors() -> None:
    strict = schema("provider.yaml.schema.json")["properties"]["connection-types"]
    jsonschema.validate(INFO["connection-types"], strict)


@pytest.mark.parametrize("key", ["operators", "sensors", "hooks", "triggers"])
def test_every_module_exists(key: str) -> None:
    for entry in INFO[key]:
        for module in entry["python-modules"]:
            importlib.import_module(module)


def test_every_class_exists() -> None:
    paths = [
        INFO["connection-types"][0]["hook-class-name"],
        INFO["extra-links"][0],
        *(one["class-name"] for one in INFO["task-decorators"]),
    ]
    assert all(callable(load(path)) for path in paths)


def test_entry_points_lead_here() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert 'provider_info = "airflow_flinklike.provider_info:get_provider_info"' in pyproject
    assert 'flinklike = "airflow_flinklike.plugin:FlinklikePlugin"' in pyproject
    installed = [e for e in entry_points(group="apache_airflow_provider") if e.value.startswith("airflow_flinklike")]
    for entry in installed:
        assert entry.load()() == INFO


def test_the_hook_and_the_connection_type_agree() -> None:
    connection = INFO["connection-types"][0]
    assert connection["connection-type"] == FlinklikeHook.conn_type
    assert connection["hook-name"] == FlinklikeHook.hook_name
    arguments: dict[str, Any] = {FlinklikeHook.conn_name_attr: "other"}
    assert FlinklikeHook(**arguments).flinklike_conn_id == "other"


def test_the_plugin_registers_the_link() -> None:
    from airflow_flinklike.links.job import FlinklikeJobLink
    from airflow_flinklike.plugin import FlinklikePlugin

    assert [type(link) for link in FlinklikePlugin.operator_extra_links] == [FlinklikeJobLink]


HEAVY = ("pyspark", "pandas", "pyarrow", "grpc", "google.protobuf", "fsspec", "fastapi", "uvicorn")


def imports_of(code: str, *, environment: dict[str, str] | None = None) -> tuple[list[str], list[str]]:
    """Heavy modules, and our runtime's packages, that are loaded after `code`; sockets are refused meanwhile."""
    script = (
        "import json, socket, sys\n"
        "def refuse(*a, **k): raise AssertionError('a connection was opened')\n"
        "socket.socket.connect = socket.socket.connect_ex = refuse\n"
        f"before = set(sys.modules)\n{code}\n"
        f"heavy = [m for m in {HEAVY!r} if m in sys.modules]\n"
        "ours = sorted({m.split('.')[1] for m in sys.modules if m.startswith('runtime.')})\n"
        "print('RESULT' + json.dumps([heavy, ours]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT), **os.environ, **(environment or {})},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    heavy, ours = json.loads(line.removeprefix("RESULT"))
    return heavy, ours


@functools.cache
def of_airflow_itself() -> tuple[str, ...]:
    """The modules that every DAG loads: Airflow 3.3's templating imports fsspec."""
    heavy, ours = imports_of("from airflow.sdk import BaseOperator, BaseSensorOperator, dag, task")
    assert set(ours) <= {"common"}  # provider_info knows our version
    assert set(heavy) <= {"fsspec"}
    return tuple(heavy)


USE = """
from datetime import datetime
from airflow.sdk import dag, task
from airflow_flinklike import Pipeline
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.sensors.job import FlinklikeJobSensor
from airflow_flinklike.decorators.flinklike import flinklike_task

@flinklike_task
def count(spark, n): return spark.range(n).count()

def build():
    pipeline = Pipeline("p")
    pipeline.source("a", lambda ctx: None)
    return pipeline

@dag(schedule=None, start_date=datetime(2024, 1, 1))
def example():
    one = FlinklikeSubmitOperator(task_id="one", pipeline=build, deferrable=True)
    two = FlinklikeSubmitOperator(task_id="two", application="etl.py")
    one >> two >> FlinklikeJobSensor(task_id="wait", job_id="0" * 32) >> count(5)

example()
"""


def test_parsing_a_dag_is_light_and_opens_no_connection() -> None:
    heavy, ours = imports_of(USE)
    assert [module for module in heavy if module not in of_airflow_itself()] == []
    assert ours == ["common", "jobgraph"]


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "dags").glob("*.py")))
def test_parsing_the_example_dags_is_light_too(name: str) -> None:
    path = str(ROOT / "dags" / name)
    heavy, ours = imports_of(f"import runpy\nsys.path.insert(0, {str(ROOT / 'dags')!r})\nrunpy.run_path({path!r})")
    assert [module for module in heavy if module not in of_airflow_itself()] == []
    assert ours == ["common", "jobgraph"]


def test_the_connection_form_is_what_airflow_shows() -> None:
    """As ProvidersManager reads it for the form: without importing the hook."""
    from airflow.providers_manager import ProvidersManager

    manager: Any = ProvidersManager()  # type: ignore[no-untyped-call]  # Airflow has no hints here
    manager.initialize_providers_configuration()
    widgets = {name.removeprefix("extra__flinklike__"): one for name, one in manager.connection_form_widgets.items()}
    fields = INFO["connection-types"][0]["conn-fields"]
    assert set(fields) <= set(widgets)
    assert all(widgets[name].field["schema"]["title"] == fields[name]["label"] for name in fields)
    behaviour = manager.field_behaviours["flinklike"]
    assert (behaviour["hidden_fields"], behaviour["relabeling"]) == (["login", "schema"], {"password": "Token"})


def test_the_plugin_registers_the_listener() -> None:
    from airflow_flinklike.listeners import job as listener
    from airflow_flinklike.plugin import FlinklikePlugin

    assert FlinklikePlugin.listeners == [listener]
    FlinklikePlugin.on_load()


def test_the_listener_keeps_out_of_the_processes_of_tasks() -> None:
    """In such a process the task instance is a RuntimeTaskInstance, and there is no database."""
    heavy, ours = imports_of(
        "from airflow_flinklike.plugin import FlinklikePlugin\nFlinklikePlugin.on_load()\n"
        "from airflow_flinklike.listeners import job as listener\nfrom types import SimpleNamespace\n"
        "listener.on_task_instance_failed(task_instance=SimpleNamespace(state='failed'))\n"
        "assert 'airflow.models.dagrun' not in sys.modules\n"
    )
    assert (heavy, ours) == (list(of_airflow_itself()), ["common"])


def test_what_tasks_import_is_there_before_their_processes_are_forked() -> None:
    """The scheduler and the DAG processor, which are Jobs of Airflow, import early; a task does not."""
    in_a_task = (
        "from airflow.sdk.execution_time.task_runner import TaskRunnerMarker\n"
        "from airflow.sdk.listener import get_listener_manager\n"
        "get_listener_manager().hook.on_starting(component=TaskRunnerMarker())\n"
        "assert 'airflow_flinklike.listeners.job' in sys.modules\n"
    )
    assert imports_of(in_a_task)[1] == ["common"]
    heavy, _ = imports_of(
        "from airflow.jobs.job import Job\nJob()\n"
        "assert 'airflow_flinklike.operators.submit' in sys.modules\n"
        "assert 'airflow_flinklike.decorators.flinklike' in sys.modules\n"
    )
    assert [module for module in heavy if module not in of_airflow_itself()] == []

"""Each earlier Airflow as a whole beside a cluster, in an environment of its own (bin/airflow-environments.sh).

The environment has the client side only; the cluster runs from .venv. The scenarios are those of test_standalone.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.test_standalone import AT_ONCE, AT_ONCE_ALL
from tests.kit.airflow.pair import AirflowPair, Scenarios
from tests.kit.cluster.script_cluster import ROOT

pytestmark = [
    pytest.mark.extended,
    pytest.mark.process,
    pytest.mark.etcd,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
]

VERSIONS = ("3.0", "3.1", "3.2")
OF_A_STORE = {
    "store_edited_by_hand",
    "store_emptied_by_hand",
    "store_emptied_while_it_works",
    "store_edited_while_it_works",
}
"""These edit `task_state_store`, which these versions have not."""
OF_3_3 = {
    "worker_gets_sigterm",
    "worker_gets_sigterm_before_it_defers",
    "worker_gets_sigterm_long_ago",
    "worker_goes_and_nobody_comes_back",
}
"""Below Airflow 3.3 a worker that gets SIGTERM does not pass it on to the process of the task: it is a lost worker."""
NOT_IN_3_0 = {"cleared_inline"} | {name for name in AT_ONCE_ALL if name.startswith("killed_")} - {
    "killed_in_the_last_try"
}
"""Airflow 3.0 fails a task whose process is killed without a retry, which all of these wait for, and leaves one that is
cleared while it runs in `restarting`."""
SCENARIOS = sorted(AT_ONCE_ALL.keys() - OF_A_STORE - OF_3_3)


def programs_of(version: str) -> Path:
    """The folder of that Airflow's programs."""
    found = ROOT / ".venv-airflow" / version / "bin"
    assert (found / "airflow").exists(), f"make the environment: bin/airflow-environments.sh {version}"
    return found


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def pair(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowPair]:
    patience = {"AIRFLOW__FLINKLIKE__FIRST_CONTACT_TIMEOUT": "600"}
    folder = tmp_path_factory.mktemp(f"cases-{version}")
    with AirflowPair(folder, environment=patience, programs=programs_of(version)) as made:
        yield made


@pytest.fixture(scope="module")
def scenarios(version: str, pair: AirflowPair, request: pytest.FixtureRequest) -> Iterator[Scenarios]:
    """Start all selected scenarios of that version."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    mine = [item.callspec.params for item in items if "scenario" in item.fixturenames]
    names = [str(one["scenario"]) for one in mine if one["version"] == version]
    names = [name for name in names if version != "3.0" or name not in NOT_IN_3_0]
    running = Scenarios(pair, {name: AT_ONCE_ALL[name] for name in names}, at_once=AT_ONCE)
    yield running
    running.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario(version: str, scenarios: Scenarios, scenario: str) -> None:
    if version == "3.0" and scenario in NOT_IN_3_0:
        pytest.skip("docs/airflow-versions.md says what Airflow 3.0 does instead")
    scenarios.result(scenario)


def said_by(version: str, home: Path, *arguments: str, program: str = "airflow") -> str:
    """The output of a program of that environment, which must succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    environment |= {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    done = subprocess.run(
        [str(programs_of(version) / program), *arguments],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PARSED = """
import json, socket, sys, time, warnings
warnings.simplefilter("ignore")
socket.socket.connect = None  # no connection can be opened
from airflow_flinklike.plugin import FlinklikePlugin
from airflow_flinklike.hooks.flinklike import FlinklikeHook
from airflow.sdk import DAG, task
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.operators.sql import FlinklikeSqlOperator
from airflow_flinklike.operators.cancel import FlinklikeCancelOperator
from airflow_flinklike.sensors.job import FlinklikeJobSensor
from airflow_flinklike.sensors.cluster import FlinklikeClusterSensor
with DAG("parsed") as dag:
    FlinklikeSubmitOperator(task_id="script", application="etl.py", deferrable=True)
    FlinklikeSubmitOperator.partial(task_id="mapped", application="etl.py").expand(application_args=[["1"], ["2"]])
    FlinklikeSqlOperator(task_id="sql", sql="select 1")
    FlinklikeCancelOperator(task_id="cancel", job_name="etl")
    FlinklikeJobSensor(task_id="job", job_id="0" * 32)
    FlinklikeClusterSensor(task_id="cluster")
    @task.flinklike
    def function(spark): ...
    @task.flinklike_branch
    def branch(spark): return "script"
    @task.flinklike_sensor
    def sensor(spark): return True
    function() >> branch() >> sensor()
heavy = sorted({"pyspark", "grpc", "pandas", "pyarrow"} & sys.modules.keys())
print(json.dumps({"tasks": sorted(dag.task_ids), "heavy": heavy, "listeners": len(FlinklikePlugin.listeners),
                  "views": len(getattr(FlinklikePlugin, "external_views", []))}))
"""


def test_all_operators_are_parsed_without_a_connection_or_a_heavy_import(version: str, tmp_path: Path) -> None:
    found: dict[str, Any] = json.loads(said_by(version, tmp_path, "-c", PARSED, program="python").splitlines()[-1])
    tasks = ["branch", "cancel", "cluster", "function", "job", "mapped", "script", "sensor", "sql"]
    views = 0 if version == "3.0" else 2
    assert found == {"tasks": tasks, "heavy": [], "listeners": 1, "views": views}


def test_airflow_finds_the_provider_its_hook_and_its_plugin(version: str, tmp_path: Path) -> None:
    said_by(version, tmp_path, "db", "migrate")
    assert "airflow-flinklike" in said_by(version, tmp_path, "providers", "list")
    assert "FlinklikeHook" in said_by(version, tmp_path, "providers", "hooks", "-o", "json")
    assert "flinklike" in said_by(version, tmp_path, "plugins", "-o", "json")

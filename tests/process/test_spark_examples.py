"""All of Spark's example scripts that are in the pyspark package, as script jobs of a real cluster, two at a time.

What they print is compared with what they print under spark-submit. Their inputs travel as archives, as `data/` would.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_flinklike import script_job
from runtime.common.states import JobStatus
from tests.kit.cluster.process_jobs import submit
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.spark import spark_examples as examples
from tests.kit.spark.plain_spark import plain_spark_environment
from tests.process.conftest import SPARK

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.extended,
    pytest.mark.timeout(1800),
]

RUN = [name for name in examples.scripts() if name not in examples.NOT_RUN]


@dataclass(frozen=True)
class Outcome:
    """What a script printed, and why it failed, "" if it did not."""

    printed: str
    failure: str


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("examples") / "inputs"
    directory.mkdir()
    examples.prepare(directory)
    return directory


@pytest.fixture(scope="session")
def chosen(request: pytest.FixtureRequest) -> list[str]:
    """The examples that this session tests."""
    values = (getattr(item, "callspec", None) for item in request.session.items)
    return [value.params["name"] for value in values if value is not None and value.params.get("name") in RUN]


@pytest.fixture(scope="session")
def plain(inputs: Path) -> dict[str, dict[str, Outcome]]:
    """By group, filled when a group is first asked for."""
    return {}


def run_plain(inputs: Path, group: str, names: list[str]) -> dict[str, Outcome]:
    directory = inputs.parent / f"plain-{group}"
    working = directory / "working"
    shutil.copytree(inputs, working)
    order = directory / "order.json"
    order.write_text(json.dumps(names))
    conf = [argument for key, value in examples.CONF.items() for argument in ("--conf", f"{key}={value}")]
    program = [examples.__file__, str(order), str(examples.SCRIPTS)]
    command = [f"{examples.SPARK}/bin/spark-submit", "--master", examples.MASTER, *conf, *program]
    environment = plain_spark_environment() | {"PYTHONPATH": str(ROOT), "SPARK_HOME": str(examples.SPARK)}
    done = subprocess.run(command, cwd=working, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    return {name: _plain_outcome(directory / f"{name.replace('/', '-')}.stdout") for name in names}


def _plain_outcome(output: Path) -> Outcome:
    failure = output.with_suffix(".failure")
    return Outcome(output.read_text(), failure.read_text() if failure.exists() else "")


@pytest.fixture(scope="session")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    options = {**SPARK, **examples.CONF, "spark.master": examples.MASTER, "taskmanager.memory.task.size": "3 gb"}
    with ScriptCluster(options, class_archive=class_archive) as started:
        yield started


@pytest.fixture(scope="session")
def on_cluster(cluster: ScriptCluster) -> dict[str, dict[str, Outcome]]:
    """By group, filled when a group is first asked for."""
    return {}


def run_on_cluster(cluster: ScriptCluster, inputs: Path, names: list[str]) -> dict[str, Outcome]:
    archives = [f"{_packed(inputs, name)}#{name}" for name in ("data", "examples")]
    files = [inputs / name for name in ("words.txt", "points.txt", "mixture.txt")]
    with cluster.connect() as client:
        jobs = {
            name: submit(
                client,
                script_job(
                    examples.SCRIPTS / name,
                    args=examples.ARGUMENTS.get(name, ()),
                    name=name,
                    archives=archives,
                    files=files,
                ),
            )
            for name in names
        }
        ended = {name: client.wait_for_result(job.job_id) for name, job in jobs.items()}
    return {
        name: Outcome(
            _printed(cluster, jobs[name].job_id),
            "" if result.status is JobStatus.FINISHED else f"{result.status.name}: {result.failure}",
        )
        for name, result in ended.items()
    }


def _packed(inputs: Path, name: str) -> str:
    packed = inputs.parent / f"{name}.zip"
    if not packed.exists():
        shutil.make_archive(str(packed.with_suffix("")), "zip", inputs / name)
    return str(packed)


def _printed(cluster: ScriptCluster, job_id: str) -> str:
    (output,) = (cluster.run / "run" / "log" / "attempts").glob(f"*/*{job_id}*/stdout")
    assert "has changed what all jobs share" not in output.with_name("stderr").read_text(), "R45"
    return output.read_text()


@pytest.mark.parametrize("name", RUN)
def test_an_example_prints_what_it_prints_under_spark_submit(
    name: str,
    cluster: ScriptCluster,
    inputs: Path,
    chosen: list[str],
    plain: dict[str, dict[str, Outcome]],
    on_cluster: dict[str, dict[str, Outcome]],
) -> None:
    group = examples.group_of(name)
    names = [other for other in chosen if examples.group_of(other) == group]
    if group not in plain:
        plain[group] = run_plain(inputs, group, names)
    if group not in on_cluster:
        on_cluster[group] = run_on_cluster(cluster, inputs, names)
    expected, found = plain[group][name], on_cluster[group][name]
    if name in examples.FAILS:
        _, _, message = expected.failure.rstrip().splitlines()[-1].partition(": ")
        assert message
        assert message in found.failure
        return
    assert not expected.failure, f"plain Spark: {expected.failure[-2000:]}"
    assert not found.failure, found.failure[-4000:]
    lines, expected_lines = examples.normal(found.printed), examples.normal(expected.printed)
    if name in examples.UNORDERED:
        lines, expected_lines = sorted(lines), sorted(expected_lines)
    if name in examples.UNSTABLE:
        assert lines
    else:
        assert lines == expected_lines


def test_every_script_that_is_named_is_there() -> None:
    known: set[str] = set(examples.scripts())
    tables: list[Iterable[str]] = [examples.ARGUMENTS, examples.NOT_RUN, examples.FAILS, examples.UNSTABLE]
    assert all(set(table) <= known for table in (*tables, examples.UNORDERED))
    assert len(known) > 100

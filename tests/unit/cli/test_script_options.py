"""Scripts of `flinklike run`: in whose words they are spoken of, what they cost, and what they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.common.shares import QueuePolicy, QueueSettings
from runtime.common.states import JobStatus
from runtime.jobgraph.graph import ResourceSpec, ScriptCode
from tests.kit.host.command_line import RunCommand
from tests.kit.rest.fakes import FAILURE
from tests.kit.rest.server import RestThread

PIPELINE = """
from airflow_flinklike import Pipeline

built = Pipeline("sales")
built.source("read", lambda ctx: None)
"""


@pytest.fixture
def jobs(module: Callable[[str], str]) -> str:
    return module(PIPELINE)


def test_a_failure_is_told_in_the_words_of_a_script(
    flinklike: RunCommand, server: RestThread, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "spark_conf spark.jars: static"
    monkeypatch.setattr("tests.kit.rest.fakes.FAILURE", replace(FAILURE, message=told))
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.FAILED))
    assert "--conf spark.jars: static" in flinklike("run", f"{jobs}.py").err.splitlines()[-1]
    assert told in flinklike("run", f"{jobs}:built").err.splitlines()[-1], "a Pipeline has spark_conf="


def test_the_line_of_a_script_that_costs_a_jvm_is_named(
    flinklike: RunCommand, server: RestThread, tmp_path: Path
) -> None:
    script = tmp_path / "etl.py"
    script.write_text(
        "import sys\nfrom pyspark.sql import SparkSession\n"
        "b = SparkSession.builder.config('spark.serializer', 'org.Kryo')\n"
        "if '--hive' in sys.argv:\n    b.enableHiveSupport()\n"
    )
    done = flinklike("run", "-d", str(script))
    told = [line for line in done.err.splitlines() if line.startswith("note: ")]
    assert [line.partition(" is conf")[0] for line in told] == [
        "note: etl.py, line 3: spark.serializer=org.Kryo",
        "note: etl.py, line 5: spark.sql.catalogImplementation=hive",
    ]
    spared = "conf spark.sql.catalogImplementation=in-memory of the job spares it when that line does not run"
    assert [spared in line for line in told] == [False, True]
    (operator,) = server.dispatcher.graph().vertices[0].operators
    assert isinstance(operator.code, ScriptCode)
    assert operator.code.builder_conf.keys() == {"spark.serializer", "spark.sql.catalogImplementation"}

    options = ("--conf", "spark.sql.catalogImplementation=in-memory", "--conf", "spark.serializer=org.Kryo")
    assert "note: " not in flinklike("run", "-d", *options, str(script)).err
    (operator,) = server.dispatcher.graph().vertices[0].operators
    assert isinstance(operator.code, ScriptCode)
    assert operator.code.builder_conf == {}
    assert "note: " not in flinklike("run", "-d", "--quiet", str(script)).err


def test_an_interpreter_of_the_shell_is_said_to_have_no_effect(
    flinklike: RunCommand, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/env/bin/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "python3")
    told = [line for line in flinklike("run", "-d", f"{jobs}.py").err.splitlines() if line.startswith("note: ")]
    assert len(told) == 1
    assert told[0].startswith("note: PYSPARK_PYTHON=/opt/env/bin/python of this shell has no effect")
    assert "note: " not in flinklike("run", "-d", f"{jobs}:built").err, "a pipeline is built on this one"


def test_what_a_script_needs_of_its_slot(flinklike: RunCommand, server: RestThread, jobs: str) -> None:
    needs = ("--resources", "memory=4g,cpu_cores=1.5", "--resources", "spark_profile=big")
    assert flinklike("run", "-d", *needs, f"{jobs}.py").code == 0
    (vertex,) = server.dispatcher.graph().vertices
    assert vertex.resources == ResourceSpec(cpu_cores=1.5, memory_bytes=4 << 30, spark_profile="big")


def test_a_slip_that_the_cluster_sees_is_a_note(
    flinklike: RunCommand, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = QueuePolicy({"etl": QueueSettings(weight=2)})
    monkeypatch.setattr(QueuePolicy, "doubts", lambda _, *asked: queues_doubts(queues, *asked))
    done = flinklike("run", "-d", "--queue", "elt", f"{jobs}:built")
    assert done.code == 0
    assert "note: queue elt: it has no options, so it is a new one with weight 1 (is etl meant?)" in done.err


queues_doubts = QueuePolicy.doubts

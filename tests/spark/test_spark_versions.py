"""Each older minor version of PySpark passes the contract, in an environment of its own."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.kit.spark.version_environments import OTHER_MINORS, ROOT, python_with, variables_with

pytestmark = [pytest.mark.extended, pytest.mark.slow, pytest.mark.timeout(7200)]

CONTRACT = (
    "tests/spark/test_spark_jvm_classes.py",
    "tests/spark/test_slot_spark.py",
    "tests/spark/test_accumulators.py",
    "tests/spark/test_planner_workers.py",
    "tests/spark/test_streaming_workers.py",
    "tests/spark/test_savepoint_restores.py",
    "tests/process/test_script_jobs.py::test_an_application_with_everything",
    "tests/process/test_environments_of_jobs.py",
    "tests/process/test_jar_applications.py::test_an_application_has_its_conf_files_and_jars",
)


@pytest.mark.parametrize("minor", OTHER_MINORS)
def test_an_older_pyspark_passes_the_contract(minor: str) -> None:
    python = python_with(minor)
    variables = variables_with(python)
    ask = "import pyspark; print(pyspark.__version__)"
    version = subprocess.run([python, "-c", ask], env=variables, capture_output=True, text=True, check=True).stdout
    assert version.startswith(f"{minor}."), version
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not extended", *CONTRACT]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=7000, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 50, done.stdout[-2000:]

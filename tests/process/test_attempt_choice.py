"""`flinklike logs` of a job that was restarted: all attempts in their order, and that they are several; or one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.spark]

FAILS = """
import sys
with open(sys.argv[1], "a+") as runs:
    runs.write("x")
    runs.seek(0)
    print("this is run", len(runs.read()))
sys.exit("no")
"""
AGAIN = ("--user-failures", "restart", "--restart-strategy", "fixed-delay,attempts=2,delay_seconds=0")


def test_one_attempt_is_shown_when_it_is_asked_for(spark_cluster: ScriptCluster, tmp_path: Path) -> None:
    (tmp_path / "etl.py").write_text(FAILS)
    done = spark_cluster.cli("run", "--json", *AGAIN, "etl.py", str(tmp_path / "runs"), cwd=tmp_path)
    job = json.loads(done.stdout)["job_id"]

    def shown(*options: str) -> tuple[list[str], str]:
        found = spark_cluster.cli("logs", job, "--stream", "stdout", *options)
        assert found.returncode == 0, found.stderr
        return [line for line in found.stdout.splitlines() if line.startswith("this is")], found.stderr

    every = ["this is run 1", "this is run 2", "this is run 3"]
    note = "These are 3 attempts, 0 to 2: --attempt N shows one of them.\n"
    assert shown() == (every, note)
    assert shown("--attempt", "all") == (every, note)
    for number, line in enumerate(every):
        assert shown("--attempt", str(number)) == ([line], "")
    lines = spark_cluster.cli("logs", job, "--json", "--attempt", "1").stdout.splitlines()
    assert {json.loads(line)["attempt"] for line in lines} == {1}
    wrong = spark_cluster.cli("logs", job, "--attempt", "3")
    assert (wrong.returncode, wrong.stderr) == (
        1,
        "flinklike: --attempt 3: the last attempt is 2, and the first one 0\n",
    )

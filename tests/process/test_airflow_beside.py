"""`airflow standalone` beside the cluster: what bin/quickstart.sh --airflow starts ends with the script.

A stand-in plays Airflow's part: it is healthy, has processes of its own, and takes its time. How a real one is stopped
is the same; the tests vary which process is stopped, and when.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ROOT
from tests.kit.host.levels import reached
from tests.kit.host.process_tree import carrying

pytestmark = pytest.mark.process

AIRFLOW = """#!/bin/sh
exec {python} {program} "$@"
"""
PROGRAM = """
import json, os, shutil, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({part: {"status": "healthy"} for part in parts}).encode())

assert shutil.which("airflow"), "as which it starts its own parts"
stubborn = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.pause()"
subprocess.Popen([sys.executable, "-c", stubborn], process_group=0)
server = HTTPServer(("127.0.0.1", int(os.environ["AIRFLOW__API__PORT"])), Health)
try:
    server.serve_forever()
except KeyboardInterrupt:
    pass
"""


class Beside:
    """The part of quickstart.sh --airflow that comes when the cluster runs."""

    def __init__(self, directory: Path) -> None:
        self.run = directory / "run"
        binaries = directory / "venv" / "bin"
        binaries.mkdir(parents=True)
        (binaries / "python").symlink_to(sys.executable)
        shutil.copy(Path(sys.prefix) / "pyvenv.cfg", directory / "venv")
        (directory / "program.py").write_text(PROGRAM)
        (binaries / "airflow").write_text(AIRFLOW.format(python=sys.executable, program=directory / "program.py"))
        (binaries / "airflow").chmod(0o755)
        self._python = str(binaries / "python")
        self.environment = {
            **os.environ,
            "FLINKLIKE_RUN_DIR": str(self.run),
            "PYTHONPATH": os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")]),
        }

    def begin(self) -> subprocess.Popen[str]:
        # Below nohup it would ignore SIGHUP, as the tests then do.
        command = ["env", "--default-signal", self._python, "-m", "runtime.entrypoint.control", "airflow-standalone"]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)

    def stop_cluster(self) -> str:
        script = [str(ROOT / "bin" / "stop-cluster.sh")]
        return subprocess.run(script, env=self.environment, capture_output=True, text=True, check=True).stdout

    def parts(self) -> dict[int, str]:
        """Airflow and what it has started."""
        return {
            pid: command
            for pid, command in carrying("AIRFLOW_HOME", str(self.run / "airflow")).items()
            if "program.py" in command or "signal.pause" in command
        }


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    for pid in made.parts():
        os.kill(pid, signal.SIGKILL)


def running(beside: Beside) -> tuple[subprocess.Popen[str], str]:
    """Its front, and the line with its address."""
    front = beside.begin()
    assert front.stdout is not None
    assert "Starting airflow standalone" in front.stdout.readline()
    greeting = front.stdout.readline()
    assert greeting.startswith("Airflow: http://127.0.0.1:")
    assert len(beside.parts()) == 2
    return front, greeting


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)])
def test_it_ends_with_its_front(beside: Beside, number: signal.Signals, code: int) -> None:
    front, _ = running(beside)
    with front:
        front.send_signal(number)
        assert front.wait(100) == code
    assert beside.parts() == {}


def test_a_second_one_is_shown_the_first_and_stop_cluster_ends_it(beside: Beside) -> None:
    front, greeting = running(beside)
    with front, beside.begin() as second:
        assert second.stdout is not None
        said = second.stdout.read()
        assert (second.wait(100), said.splitlines()[0][:15], greeting in said) == (0, "Already running", True)
        assert len(beside.parts()) == 2
        assert "Stopping airflow standalone." in beside.stop_cluster()
        assert front.wait(100) == 0
    assert beside.parts() == {}


def test_what_a_killed_one_has_left_is_swept(beside: Beside) -> None:
    """By the session of the recorded process: the kernel reuses no number of a session that lives."""
    front, _ = running(beside)
    with front:
        front.kill()
        front.wait(100)
        main = next(pid for pid, command in beside.parts().items() if "program.py" in command)
        os.kill(main, signal.SIGKILL)
        reached(lambda: len(beside.parts()) == 1, "only its child is left")
        beside.stop_cluster()
    assert beside.parts() == {}

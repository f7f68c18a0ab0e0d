"""When a cluster is whole again, and the steps of a rolling restart."""

from __future__ import annotations

import http.server
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.config.layout import Layout
from runtime.config.loading import load
from runtime.entrypoint.control.cluster_view import ClusterState, ClusterView
from runtime.entrypoint.control.daemon import JOBMANAGER, JOBMASTER, TASKMANAGER, Daemon, DaemonKind
from runtime.entrypoint.control.pending import DaemonError
from runtime.entrypoint.control.pid_file import PidFile, ProcessId, Record
from runtime.entrypoint.control.rolling import RollingRestart, starts_first

BEFORE = ClusterState({"a": "RUNNING", "b": "CREATED", "c": "FAILED", "d": "INITIALIZING"}, 2, 8)


@pytest.mark.parametrize(
    ("jobs", "job_masters", "slots", "missing"),
    [
        ({"a": "RUNNING", "b": "RUNNING"}, 2, 8, ""),
        ({"a": "FINISHED", "b": "CANCELED"}, 3, 9, ""),
        ({"a": "RESTARTING", "b": "FAILED"}, 2, 8, ""),
        ({}, 2, 8, ""),
        ({"a": "INITIALIZING", "b": "RUNNING"}, 2, 8, "1 jobs have no owner"),
        ({"a": "RUNNING"}, 1, 8, "1 of 2 JobMaster processes are ready"),
        ({"a": "RUNNING"}, 2, 7, "7 of 8 slots are there"),
    ],
)
def test_what_is_missing(jobs: Mapping[str, str], job_masters: int, slots: int, missing: str) -> None:
    assert ClusterState(jobs, job_masters, slots).lacks(BEFORE) == missing


BODIES = {
    "/jobs/overview": {"jobs": [{"jid": "a", "state": "RUNNING"}]},
    "/jobmasters": {"jobmasters": [{"state": "ready"}, {"state": "draining"}]},
    "/overview": {"slots-total": 3},
}


class _Rest(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = 200 if self.headers["authorization"] == "Bearer secret" else 401
        body = json.dumps(BODIES[self.path]).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def rest() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Rest)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_any_job_manager_is_asked() -> None:
    with rest() as address:
        state = ClusterView(lambda: ["127.0.0.1:1", address], "secret").state()
        assert state == ClusterState({"a": "RUNNING"}, 1, 3)
        assert ClusterView(lambda: [address], None).state() is None
    assert ClusterView(lambda: ["127.0.0.1:1"], "secret").wait_whole(BEFORE, 0.0) == (None, "no JobManager answers")


@pytest.mark.parametrize(
    ("kind", "dynamic", "first"),
    [
        (JOBMASTER, [], True),
        (JOBMASTER, ["jobmanager.jobmaster.rpc.port=7000"], False),
        (JOBMANAGER, [], False),
        (TASKMANAGER, [], False),
    ],
)
def test_who_is_started_first(kind: DaemonKind, dynamic: list[str], first: bool) -> None:
    assert starts_first(kind, load(None, environment={}, dynamic=dynamic)) is first


def test_the_options_of_a_process_are_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print(flush=True); input()", "-D", "a.b=1", "-D", "c=d e"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # amid exec(2) a process has no arguments yet
        identity = ProcessId.of(child.pid)
        assert identity is not None
        daemon = Daemon(JOBMASTER, Layout(tmp_path, tmp_path, tmp_path), os.environ, io.StringIO())
        assert daemon.options_of(Record(identity, 0)) == ["a.b=1", "c=d e"]
        child.communicate(b"\n")


def test_nothing_is_touched_while_no_job_manager_answers(tmp_path: Path) -> None:
    layout = Layout(tmp_path, tmp_path, tmp_path)
    pids = PidFile(layout.pid, "jobmaster")
    me = ProcessId.of(os.getpid())
    assert me is not None
    with pids.locked():
        pids.write([Record(me, 0)])
    rolling = RollingRestart(layout, os.environ, (), ClusterView(list, None), io.StringIO())
    with pytest.raises(DaemonError, match="left as it is"):
        rolling.run(JOBMASTER)

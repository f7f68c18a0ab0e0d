"""`flinklike process-log` and `thread-dump`."""

import json
import sys
from typing import Any

import pytest

from airflow_flinklike.cli import process_views
from airflow_flinklike.client.protocol import Operation, Pause
from runtime.common.errors import UnavailableError
from runtime.gateways.process import LogFileRequest
from tests.kit.host.command_line import RunCommand
from tests.kit.rest.fakes import JOB_MASTER, FakeProcess
from tests.kit.rest.server import RestThread

PROCESSES = {
    ("jobmanager",): "",
    ("taskmanager", "tm-1"): "127.0.0.1:1",
    ("jobmaster", JOB_MASTER): "127.0.0.1:2",
}


@pytest.fixture(autouse=True)
def _new_processes(server: RestThread) -> None:
    server.fakes.own_process.text = b"of the leader\n"
    server.fakes.processes["127.0.0.1:1"].text = b"of the taskmanager\n"
    server.fakes.processes["127.0.0.1:2"].text = b"of the jobmaster\n"


def process_of(server: RestThread, address: str) -> FakeProcess:
    return server.fakes.processes[address] if address else server.fakes.own_process


@pytest.mark.parametrize(("names", "address"), PROCESSES.items())
def test_a_log_is_written_as_it_is(flinklike: RunCommand, server: RestThread, names: Any, address: str) -> None:
    done = flinklike("process-log", *names)
    assert (done.code, done.out) == (0, process_of(server, address).text.decode())


@pytest.mark.parametrize(("names", "address"), PROCESSES.items())
def test_a_file_is_named(flinklike: RunCommand, server: RestThread, names: Any, address: str) -> None:
    process = process_of(server, address)
    process.asked.clear()
    assert flinklike("process-log", *names, "--file", "other.log.1").out == process.text.decode()
    assert [one.name for one in process.asked if isinstance(one, LogFileRequest)] == ["other.log.1"]


def test_a_long_log_comes_in_pieces(flinklike: RunCommand, server: RestThread) -> None:
    server.fakes.own_process.text = b"0123456789abcde\n" * 200_000
    assert flinklike("process-log", "jobmanager").out == server.fakes.own_process.text.decode()


def test_the_names_of_the_files(flinklike: RunCommand) -> None:
    header, line = flinklike("process-log", "taskmanager", "tm-1", "--list").out.splitlines()
    assert header.split() == ["file", "bytes", "changed"]
    assert line.split()[:2] == ["flinklike.log", "19"]
    listed = json.loads(flinklike("process-log", "taskmanager", "tm-1", "--list", "--json").out)
    assert [one["name"] for one in listed["logs"]] == ["flinklike.log"]


def test_follow_begins_near_the_end_and_goes_on(
    flinklike: RunCommand, server: RestThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = server.fakes.own_process
    process.text = b"old\n" * 50_000 + b"last\n"
    written = [b"more\n", b"", None]

    def pause(_: float) -> Operation[None]:
        more = written.pop(0)
        if more is None:
            sys.exit(0)
        process.text = process.text + more if more else b"rotated\n"
        yield Pause(0)

    monkeypatch.setattr(process_views, "pause", pause)
    done = flinklike("process-log", "jobmanager", "-f")
    shown = done.out.splitlines()
    assert len(shown) < 50_000 / 3
    assert shown[-3:] == ["last", "more", "rotated"]
    assert "moved aside" in done.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("process-log", "jobmanager", "x"), "jobmanager: it takes no id"),
        (("process-log", "taskmanager"), "taskmanager: name its id, as `flinklike taskmanagers` shows it"),
        (("thread-dump", "jobmaster"), "jobmaster: name its id, as `flinklike jobmasters` shows it"),
        (("process-log", "worker"), "worker"),
        (("process-log", "jobmanager", "--list", "-f"), "--list: it shows names only"),
        (("process-log", "jobmanager", "--json"), "--json: it goes with --list"),
        (("log-level", "hpack", "DEBUG"), "logger: 'hpack' is none of runtime or jobmaster_process"),
        (("log-level", "runtime", "loud"), "level: 'LOUD' is none of"),
        (("log-level", "runtime.absent", "DEBUG"), "no process has a logger runtime.absent"),
        (("process-log", "taskmanager", "tm-9"), "TaskManager tm-9 not found"),
        (("process-log", "taskmanager", "../jobmanager"), "not found"),
        (("process-log", "jobmanager", "--file", "absent"), "the JobManager: this process has no log file 'absent'"),
    ],
)
def test_mistakes_are_one_sentence(flinklike: RunCommand, arguments: tuple[str, ...], says: str) -> None:
    done = flinklike(*arguments)
    assert (done.code, done.out) == (1, "")
    assert says in done.err.replace("Unable to load requested file", "not found")
    assert done.err.count("\n") == 1


def test_a_thread_dump(flinklike: RunCommand) -> None:
    assert flinklike("thread-dump", "jobmanager").out == "=== MainThread\n\tat module.function(file.py:1)\n\n"
    shown = json.loads(flinklike("thread-dump", "taskmanager", "tm-1", "--json").out)
    assert shown["threadInfos"][0]["threadName"] == "MainThread"


def test_the_level_of_a_logger(flinklike: RunCommand, server: RestThread) -> None:
    done = flinklike("log-level", "runtime.rest", "debug")
    assert done.code == 0
    assert done.out.splitlines() == [
        "runtime.rest logs from DEBUG on, until a process is started again:",
        "jobmanager: was DEFAULT",
        f"jobmaster {JOB_MASTER}: was DEFAULT",
        "taskmanager tm-1: was DEFAULT",
    ]
    server.fakes.processes["127.0.0.1:1"].error = UnavailableError("it is away")
    try:
        done = flinklike("log-level", "runtime.rest", "DEFAULT", "--json")
    finally:
        server.fakes.processes["127.0.0.1:1"].error = None
    assert done.code == 1
    assert json.loads(done.out)["processes"][2]["error"] == "it is away"

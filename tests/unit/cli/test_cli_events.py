"""`flinklike events` and `flinklike top`."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from rich.console import Console

from airflow_flinklike.cli import events as events_command
from airflow_flinklike.cli import top as top_command
from airflow_flinklike.cli.top import Screen, look
from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.client.protocol import Operation, Pause
from airflow_flinklike.client.token import find_credential
from airflow_flinklike.exceptions import ClusterUnavailableError, FlinklikeClientError, ForeignAnswerError
from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.cluster_events import ClusterEventLog
from runtime.gateways.cluster_events import NO_EVENTS, ClusterEvent, EventKind
from runtime.highavailability.cluster_events import ClusterEventStore
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from tests.kit.host.command_line import RunCommand
from tests.kit.rest.server import TOKEN, RestThread

End = Callable[["subprocess.Popen[bytes]", int], object]
"""Ends the command: by its process, or by a key on its terminal."""


def new_term(*stored: ClusterEvent) -> ClusterEventLog:
    """It has found those in the store."""
    store = MemoryKeyValueStore(LoopClock())
    history = ClusterEventStore(store, Keys.of_cluster("test"), LeaderTerm("k", 1), SystemEntropy(), timeout=1)
    made = ClusterEventLog(history, 1, LoopClock(), SystemEntropy())
    for event in stored:
        made._add(event)
    return made


@pytest.fixture
def told(server: RestThread) -> Iterator[RestThread]:
    """Two events have happened."""
    server.fakes.events = server.do(new_term)
    tell(server, "one", "\x1b[2Jtwo")
    yield server
    server.fakes.events = NO_EVENTS


def tell(server: RestThread, *messages: str) -> None:
    for message in messages:
        server.do(partial(server.fakes.events.tell, EventKind.TASKMANAGER_LOST, message, subject=message))


def test_a_table(flinklike: RunCommand, told: RestThread) -> None:
    header, one, two = flinklike("events").out.splitlines()
    assert header.split() == ["time", "event"]
    assert one.split()[2:] == ["taskmanager-lost", "one"]
    assert two.split()[2:] == ["taskmanager-lost", "\\x1b[2Jtwo"], "nothing steers the terminal"
    assert len(flinklike("events", "--limit", "1").out.splitlines()) == 2
    assert json.loads(flinklike("events", "--json").out)["events"][0]["message"] == "one"


def test_none(flinklike: RunCommand) -> None:
    assert flinklike("events").out == "No events.\n"


def test_each_event_is_shown_once_also_when_the_leader_changes(
    flinklike: RunCommand, told: RestThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of the next leader may begin anew."""
    pauses = iter(range(100))

    def instead(seconds: float) -> Operation[None]:
        del seconds
        match next(pauses):
            case 0:
                tell(told, "three")
            case 1:
                before = told.fakes.events.page(lambda _: True, after="", limit=2).events
                told.fakes.events = told.do(partial(new_term, *before))
                tell(told, "four")
            case _:
                raise KeyboardInterrupt
        yield Pause(0.0)

    monkeypatch.setattr(events_command, "pause", instead)
    done = flinklike("events", "--follow", "--json")
    assert [json.loads(line)["message"] for line in done.out.splitlines()] == ["one", "\\x1b[2Jtwo", "three", "four"]
    assert done.code == 130


class TestTop:
    def test_once(self, flinklike: RunCommand, server: RestThread) -> None:
        server.do(lambda: server.dispatcher.put(JobId("c" * 32), JobStatus.RUNNING))
        out = flinklike("top", "--once").out
        assert flinklike("top").out.split() == out.split(), "stdout is no terminal"
        for text in ("c" * 32, "RUNNING", "tm-1", "b" * 32, "stand-bys: jm-2:8081", "1/2", "1 unfinished"):
            assert text in out, text
        found = json.loads(flinklike("top", "--json").out)
        assert found.keys() == {"overview", "jobs", "jobmasters", "taskmanagers"}

    @pytest.mark.parametrize(("width", "height"), [(200, 50), (80, 24), (40, 24), (20, 10)])
    def test_a_screen_of_any_size(self, server: RestThread, width: int, height: int) -> None:
        for number in range(60):
            server.do(partial(server.dispatcher.put, JobId(f"{number:032x}"), JobStatus.RUNNING))
        with FlinklikeClient([server.address], find_credential({"FLINKLIKE_TOKEN": TOKEN})) as client:
            found = look(client)
        console = Console(width=width, height=height, force_terminal=True, color_system=None)
        with console.capture() as captured:
            console.print(Screen(found))
        lines = captured.get().splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) <= max(height, 24)
        assert any(line.startswith("and ") for line in lines), "it says that there are more"

    def test_a_jvm_that_is_not_warm_yet_is_starting(self, server: RestThread) -> None:
        with FlinklikeClient([server.address], find_credential({"FLINKLIKE_TOKEN": TOKEN})) as client:
            found = look(client)
        (manager,) = found["taskmanagers"]
        texts = []
        for changed in ({"spark": True, "warm": True}, {"spark": True, "warm": False}, {"spark": False}):
            console = Console(width=200, force_terminal=True, color_system=None)
            with console.capture() as captured:
                console.print(Screen({**found, "taskmanagers": [{**manager, **changed}]}))
            (row,) = (line for line in captured.get().splitlines() if line.startswith("tm-1"))
            texts.append(row.split()[3])
        assert texts == ["warm", "starting", "-"]

    def test_live_until_q(self, server: RestThread, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "RUNNING" in live(server, monkeypatch, lambda _, terminal: os.write(terminal, b"q"))

    def test_live_until_ctrl_c(self, server: RestThread, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "RUNNING" in live(server, monkeypatch, lambda process, _: process.send_signal(signal.SIGINT))

    def test_a_terminal_that_is_gone_ends_it(self) -> None:
        ours, theirs = pty.openpty()
        os.close(ours)
        assert top_command._is_end(theirs)
        os.close(theirs)

    def test_a_mistake_of_its_own_is_no_quiet_end(self, server: RestThread, monkeypatch: pytest.MonkeyPatch) -> None:
        """The thread that asks ended, and the command with it, as if q had been pressed."""

        def mistaken(client: FlinklikeClient) -> dict[str, Any]:
            raise KeyError("jobs")

        monkeypatch.setattr(top_command, "look", mistaken)
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "rb"), os.fdopen(theirs, "r+b", buffering=0) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)
            with FlinklikeClient([server.address], find_credential({"FLINKLIKE_TOKEN": TOKEN})) as client:
                console = Console(width=80, height=24, force_terminal=True, file=io.StringIO())
                with pytest.raises(FlinklikeClientError, match=r"mistake of its own \(KeyError\): 'jobs'"):
                    top_command._show_live(client, console)

    def test_an_answer_that_is_none_is_told_and_asked_for_again(
        self, server: RestThread, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with FlinklikeClient([server.address], find_credential({"FLINKLIKE_TOKEN": TOKEN})) as client:
            answers: Iterator[Any] = iter(
                [ForeignAnswerError("it is no JobManager"), ClusterUnavailableError("reset"), look(client)]
            )

            def told(_: FlinklikeClient) -> Any:
                answer = next(answers, None)
                if isinstance(answer, Exception):
                    raise answer
                if answer is None:
                    raise FlinklikeClientError("enough")
                return answer

            monkeypatch.setattr(top_command, "look", told)
            monkeypatch.setattr(top_command, "_PAUSE_SECONDS", 0.0)
            heard, told_to = os.pipe()
            looker = top_command._Looker(client, told_to)
            looker.run()
            os.close(heard)
            os.close(told_to)
        assert str(looker.error) == "enough"
        assert looker.found is not None
        assert looker.trouble == ""


def live(
    server: RestThread, monkeypatch: pytest.MonkeyPatch, end: Callable[[subprocess.Popen[bytes], int], object]
) -> str:
    """What the command shows on a terminal until its end."""
    monkeypatch.setenv("FLINKLIKE_ADDRESS", server.address)
    monkeypatch.setenv("FLINKLIKE_TOKEN", TOKEN)
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "airflow_flinklike.cli", "top"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shown = b""
    try:
        shown = read_until(ours, b"No job runs")
        server.do(lambda: server.dispatcher.put(JobId("c" * 32), JobStatus.RUNNING))
        shown += read_until(ours, b"RUNNING")
        end(process, ours)
        while process.poll() is None:
            shown += read(ours)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return shown.decode(errors="replace")


def read_until(descriptor: int, wanted: bytes) -> bytes:
    found = b""
    while wanted not in found:
        piece = read(descriptor)
        assert piece, f"{wanted!r} is not shown: {found!r}"
        found += piece
    return found


def read(descriptor: int) -> bytes:
    ready, _, _ = select.select([descriptor], [], [], 60)
    try:
        return os.read(descriptor, 65536) if ready else b""
    except OSError:
        return b""  # the other end is closed

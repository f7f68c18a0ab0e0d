"""`flinklike history`: filters, tables, and one sentence for what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime

import pytest

from airflow_flinklike.cli.history import parse_time
from airflow_flinklike.exceptions import PipelineError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.kit.cluster.script_cluster import free_port
from tests.kit.host.command_line import RunCommand
from tests.kit.rest.fakes import JOB, summary
from tests.kit.rest.server import RestThread

OTHER = JobId("b" * 32)
NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("", 0),
        ("90m", NOW - 90 * 60_000),
        ("36h", NOW - 36 * 3_600_000),
        ("7d", NOW - 7 * 86_400_000),
        ("2026-11-01T12:00+02:00", 1_793_527_200_000),
        ("2026-11-01", int(datetime(2026, 11, 1).astimezone().timestamp() * 1000)),
    ],
)
def test_times(text: str, millis: int) -> None:
    assert parse_time(text, NOW) == millis


@pytest.mark.parametrize("text", ["yesterday", "7w", "d", "-3d", "99999999999999999999d", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(PipelineError, match="is no time"):
        parse_time(text, NOW)


def test_lists(flinklike: RunCommand, server: RestThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLINKLIKE_HISTORY_ADDRESS", server.address)
    assert flinklike("history").out == "No jobs.\n"
    server.put(JOB, JobStatus.FAILED)
    server.put(OTHER, JobStatus.FINISHED)
    header, *lines = flinklike("history").out.splitlines()
    assert header.split() == ["job", "cluster", "name", "state", "started", "time", "of"]
    assert len(lines) == 2
    assert [one["jid"] for one in json.loads(flinklike("history", "--state", "failed", "--json").out)["jobs"]] == [JOB]
    assert json.loads(flinklike("history", "--name", "bbb", "--json").out)["total"] == 1
    assert flinklike("history", "--since", "1h").out == "No jobs.\n"
    assert flinklike("history", "--until", "1h", "--limit", "1").out.endswith(
        "1 of 2 jobs: --limit shows more, --until older ones.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--state", "lost"], "--state 'lost': a history has jobs that are FINISHED, FAILED, CANCELED"),
        (["--state", "running"], "--state 'running': a history has jobs that are"),
        (["--since", "soon"], "is no time"),
        (["--limit", "0"], "--limit"),
        (["--address", "http://127.0.0.1:{port}"], "bin/historyserver.sh start"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    flinklike: RunCommand, server: RestThread, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.setenv("FLINKLIKE_HISTORY_ADDRESS", server.address)
    done = flinklike("history", *(one.format(port=free_port()) for one in arguments))
    assert (done.code, done.out) == (1, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1


def test_a_name_is_shown_in_one_line_and_steers_nothing(
    flinklike: RunCommand, server: RestThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLINKLIKE_HISTORY_ADDRESS", server.address)
    server.put(JOB, JobStatus.FAILED)
    name = "a\x1b[31m\r\nbbbb  FINISHED\tx"
    server.do(lambda: server.fakes.dispatcher.summaries.update({JOB: replace(summary(JOB), name=name)}))
    _, *lines = flinklike("history").out.splitlines()
    assert len(lines) == 1
    assert "a\\x1b[31m\\r\\nbbbb  FINISHED\\tx" in lines[0]

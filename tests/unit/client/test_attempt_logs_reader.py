"""The reader of attempt logs gives each whole line once, also when another process goes on."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_flinklike.client.attempt_logs import LINE_BYTES_MAX, AttemptLogs, LogChunk
from airflow_flinklike.client.protocol import Response
from runtime.common.ids import JobId
from runtime.common.log_position import STREAMS, AttemptKey

JOB = JobId("a" * 32)
VERTEX = "b" * 32


@dataclass
class Served:
    """One attempt of the fake endpoint."""

    ended: bool = False
    missing: str = ""
    text: dict[str, bytes] = field(default_factory=dict)


@dataclass
class FakeLogs:
    """A fake endpoint, which answers pieces of at most `piece_bytes`."""

    piece_bytes: int = 1 << 16
    attempts: dict[AttemptKey, Served] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def attempt(self, subtask: int = 0, attempt: int = 0) -> Served:
        return self.attempts.setdefault(AttemptKey(VERTEX, subtask, attempt), Served())

    def answer(self, document: dict[str, Any]) -> dict[str, Any]:
        from runtime.common.log_position import LogPosition

        self.asked.append(document)
        position = LogPosition.from_json(document["position"])
        more, attempts = False, []
        for key, one in self.attempts.items():
            if position.is_drained(key):
                continue
            logs = {}
            for stream in document["streams"]:
                data, offset = one.text.get(stream, b""), position.offset(key, stream)
                piece = data[offset : offset + self.piece_bytes]
                end = offset + len(piece)
                logs[stream] = {
                    "data": base64.b64encode(piece).decode(),
                    "next-offset": end,
                    "size": len(data),
                    "truncated": False,
                    "dropped": 0,
                }
                more |= end < len(data)
            shown = {} if one.missing else logs
            attempts.append(
                {
                    "vertex": key.vertex_id,
                    "subtask": key.subtask,
                    "attempt": key.attempt,
                    "ended": one.ended,
                    "missing": one.missing,
                    "logs": shown,
                }
            )
        progress = {"text": "", "fraction": 0.0, "spark-tasks-completed": 0, "spark-tasks-total": 0}
        vertices = [{"id": VERTEX, "name": "read", "parallelism": 1, "tasks": {}, "progress": progress}]
        head = {"state": "RUNNING", "last-modification": 1}
        return {**head, "vertices": vertices, "attempts": attempts, "more": more}


def look(logs: AttemptLogs, server: FakeLogs, *, is_last: bool = False) -> list[LogChunk]:
    operation = logs.look()
    request = next(operation)
    assert isinstance(request.body, bytes)  # type: ignore[union-attr]  # the first step is a request
    body = json.dumps(server.answer(json.loads(request.body))).encode()  # type: ignore[union-attr]
    with pytest.raises(StopIteration) as done:
        operation.send(Response(200, {}, body))
    return logs.take(done.value.value, is_last=is_last)


def texts(chunks: list[LogChunk]) -> list[tuple[str, bytes]]:
    return [(chunk.stream, chunk.data) for chunk in chunks]


PIECES = st.text(alphabet="aö€😀\n", max_size=30)
STEPS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(STREAMS), PIECES, st.booleans(), st.integers(0, 3)))


@settings(max_examples=150)
@given(STEPS, st.integers(1, 40))
def test_every_byte_is_taken_once_and_lines_are_whole(
    steps: list[tuple[int, str, str, bool, int]], piece_bytes: int
) -> None:
    """Logs grow by any bytes between looks. New readers replace old ones and know the position only."""
    server = FakeLogs(piece_bytes=max(piece_bytes, 4))
    logs = AttemptLogs(JOB)
    found: dict[tuple[AttemptKey, str], bytes] = {}

    def take(*, is_last: bool = False) -> None:
        for chunk in look(logs, server, is_last=is_last):
            assert chunk.data
            found[chunk.key, chunk.stream] = found.get((chunk.key, chunk.stream), b"") + chunk.data
            if not is_last:
                assert chunk.data.endswith(b"\n")

    for subtask, stream, text, is_replaced, cut in steps:
        served = server.attempt(subtask)
        encoded = text.encode()
        served.text[stream] = served.text.get(stream, b"") + encoded[: len(encoded) - cut]
        take()
        served.text[stream] += encoded[len(encoded) - cut :] if cut <= len(encoded) else b""
        if is_replaced:
            logs = AttemptLogs(JOB, position=json.loads(json.dumps(logs.position())))
    server.piece_bytes = 1 << 16
    for served in server.attempts.values():
        served.ended = True
    take(is_last=True)
    for key, served in server.attempts.items():
        for stream, data in served.text.items():
            assert found.get((key, stream), b"") == data
    assert look(logs, server) == []
    assert logs.live == 0


def test_a_line_is_held_back_until_it_ends_or_nobody_can_end_it() -> None:
    server = FakeLogs()
    logs = AttemptLogs(JOB)
    server.attempt().text["stdout"] = b"one\ntw"
    assert texts(look(logs, server)) == [("stdout", b"one\n")]
    assert look(logs, server) == []
    server.attempt().text["stdout"] += b"o\nthree"
    assert texts(look(logs, server)) == [("stdout", b"two\n")]
    server.attempt().ended = True
    assert texts(look(logs, server)) == [("stdout", b"three")]
    assert logs.position() == {"drained": [[VERTEX, 0, "0"]]}


@pytest.mark.parametrize("character", ["x", "ö", "€", "😀"])
def test_a_line_without_end_is_taken_in_parts_of_whole_characters(character: str) -> None:
    for shift in range(4):
        server = FakeLogs(piece_bytes=LINE_BYTES_MAX + shift)
        logs = AttemptLogs(JOB)
        text = character * (2 * LINE_BYTES_MAX)
        server.attempt().text["stdout"] = text.encode()
        taken = b""
        while chunks := look(logs, server):
            assert b"".join(chunk.data for chunk in chunks).decode()
            taken += chunks[0].data
        server.attempt().ended = True
        taken += b"".join(chunk.data for chunk in look(logs, server))
        assert taken.decode() == text


def test_bytes_that_are_no_text_do_not_stop_anything() -> None:
    server = FakeLogs()
    logs = AttemptLogs(JOB)
    server.attempt().text["stdout"] = b"\x80" * LINE_BYTES_MAX + b"\xff\xfe"
    [chunk] = look(logs, server)
    assert len(chunk.data) >= LINE_BYTES_MAX
    assert set(chunk.lines()[0]) == {"�"}


def test_more_without_progress_is_no_reason_to_ask_again() -> None:
    server = FakeLogs(piece_bytes=4)
    logs = AttemptLogs(JOB)
    server.attempt().text["stdout"] = b"ab\ncdefghi"
    look(logs, server)
    assert logs.has_more
    look(logs, server)
    assert not logs.has_more


def test_what_is_missing_is_told_once_and_not_too_soon() -> None:
    server = FakeLogs()
    logs = AttemptLogs(JOB)
    server.attempt().ended = True
    server.attempt().missing = "TaskManager tm-1 is not registered"
    server.attempt(subtask=1).text["stdout"] = b"x\n"
    assert [chunk.data for chunk in look(logs, server)] == [b"x\n"]
    assert look(logs, server) == []
    [chunk] = look(logs, server)
    assert (chunk.title, chunk.notice) == ("read", "TaskManager tm-1 is not registered")
    assert look(logs, server) == []
    assert [chunk.notice != "" for chunk in look(AttemptLogs(JOB), server, is_last=True)] == [True, False]


def test_only_the_streams_and_the_part_that_was_asked_for() -> None:
    server = FakeLogs()
    logs = AttemptLogs(JOB, ["stderr"], vertex="read", subtask=0)
    server.attempt().text = {"stdout": b"x\n", "stderr": b"y\n"}
    server.attempt().ended = True
    assert texts(look(logs, server)) == [("stderr", b"y\n")]
    assert {**server.asked[0], "limit": 0} == {
        "streams": ["stderr"],
        "position": {},
        "limit": 0,
        "vertex": "read",
        "subtask": 0,
    }
    assert look(logs, server) == []


def test_titles_and_lines() -> None:
    def chunk(data: bytes = b"", *, parallelism: int = 1, attempt: int = 0) -> LogChunk:
        return LogChunk("read", parallelism, AttemptKey(VERTEX, 3, attempt), "stdout", data)

    assert chunk().title == "read"
    assert chunk(parallelism=4).title == "read (3)"
    assert chunk(parallelism=4, attempt=2).title == "read (3) attempt 2"
    assert chunk(b"a\nb\r\n10%\r20%\r30%\n\nlast").lines() == ["a", "b", "30%", "", "last"]

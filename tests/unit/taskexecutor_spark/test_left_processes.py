"""When an attempt looks for processes that its Python functions have left, and what it makes of them (R29)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.taskexecutor.slot_process.attached_spark import AttachedSpark
from runtime.taskexecutor.slot_process.spark_attachment import SparkAttachment
from runtime.taskexecutor.spark_protocol.sessions import SlotSession
from runtime.taskexecutor.worker_protocol import session_marks

WORKER = {4711: "python-worker"}


def attached_in(directory: Path) -> AttachedSpark:
    properties = SimpleNamespace(auto_field=False, enable_memory_management=False)
    client = SimpleNamespace(gateway_property=properties, address="127.0.0.1", port=1)
    context: Any = SimpleNamespace(environment={}, _jsc=SimpleNamespace(_gateway_client=client))
    nothing: Any = None
    return AttachedSpark(SlotSession("slot-0-ab", 1, "secret", "pool", str(directory), {}), nothing, context)


class _Looks:
    """Each look finds the next of these, and the last one again."""

    def __init__(self, *found: dict[int, str]) -> None:
        self._found: Iterator[dict[int, str]] = iter(found)
        self.number = 0

    def __call__(self, _session_id: str) -> dict[int, str]:
        self.number += 1
        return next(self._found, {})


def test_an_attempt_without_new_tasks_in_python_costs_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attached, looks = attached_in(tmp_path), _Looks({}, WORKER, {})
    monkeypatch.setattr(session_marks, "left_behind", looks)
    assert (attached.left_behind(), looks.number) == ("", 0)
    used = tmp_path / session_marks.USED
    used.write_text(".")
    assert (attached.left_behind(), looks.number) == ("", 1)
    assert (attached.left_behind(), looks.number) == ("", 1)
    used.write_text("..")
    assert (attached.left_behind(), looks.number) == ("python-worker (4711)", 2)
    assert (attached.left_behind(), looks.number) == ("", 3), "what was left is looked for again"


def test_each_script_of_a_session_is_a_reason_to_look(tmp_path: Path) -> None:
    words = session_marks.shell_words("slot-0-ab", str(tmp_path))
    for number in (1, 2):
        subprocess.run(["bash", "-c", f"{words}true"], check=True)
        assert session_marks.tasks_of(str(tmp_path)) == number
    gone = session_marks.shell_words("slot-0-ab", str(tmp_path / "gone"))
    assert subprocess.run(["bash", "-c", f"{gone}true"], check=False, capture_output=True).returncode == 1


@pytest.mark.parametrize(("looks", "has_left"), [(_Looks(WORKER, WORKER, {}), False), (_Looks(*[WORKER] * 99), True)])
def test_a_worker_that_has_not_heard_of_its_tasks_end_is_given_time(
    looks: _Looks, has_left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session_marks, "left_behind", looks)
    (tmp_path / session_marks.USED).write_text(".")
    assert SparkAttachment._has_left_processes(attached_in(tmp_path)) is has_left
    assert ("python-worker (4711)" in capsys.readouterr().err) is has_left

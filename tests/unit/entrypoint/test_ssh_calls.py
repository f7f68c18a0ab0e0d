"""One call over ssh: what a host answers, asks back, refuses, or leaves unsaid. An `ssh` on PATH runs it here."""

from __future__ import annotations

import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from runtime.config.layout import Layout
from runtime.entrypoint.control import worker_verbs
from runtime.entrypoint.control.daemon import TASKMANAGER
from runtime.entrypoint.control.pending import DaemonError
from runtime.entrypoint.control.remote import RemoteHosts
from runtime.entrypoint.drivers.ssh_calls import HostRefusedError, HostUnreachableError, SshCalls

SSH = """#!/bin/bash
echo Welcome.
echo '{"a banner'
exec /bin/bash -s
"""
ASKS = "echo '{\"asks\": true}'; read -r answer; "


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshCalls:
    ssh = tmp_path / "path" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    remote = RemoteHosts(Layout(tmp_path, tmp_path, tmp_path), {}, ())
    return SshCalls(remote, TASKMANAGER, 30.0)


def script(folder: Path, text: str) -> None:
    """What bin/taskmanager.sh does on the host."""
    path = folder / "bin" / "taskmanager.sh"
    path.parent.mkdir()
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def test_an_answer_is_found_among_what_a_login_shell_says(calls: SshCalls, tmp_path: Path) -> None:
    script(tmp_path, 'echo Bye.; echo "{\\"workers\\": [\\"$1\\"]}"')
    assert calls.ask("one", ["w-1"]) == {"workers": ["w-1"]}


@pytest.mark.parametrize(("is_wanted", "answer"), [(True, "go"), (False, "no")])
def test_a_host_asks_back_once(calls: SshCalls, tmp_path: Path, answer: str, *, is_wanted: bool) -> None:
    script(tmp_path, ASKS + 'echo "{\\"started\\": \\"$answer\\"}"')
    asked: list[bool] = []

    def wanted() -> bool:
        asked.append(is_wanted)
        return is_wanted

    assert calls.ask("one", ["start-worker"], is_wanted=wanted) == {"started": answer}
    assert asked == [is_wanted]


def test_a_banner_of_json_is_no_answer(calls: SshCalls, tmp_path: Path) -> None:
    script(tmp_path, """echo '{"motd": 1}'; echo '{"workers": []}'; echo '{"bye": 1}'""")
    assert calls.ask("one", []) == {"workers": []}


def test_only_the_first_question_is_answered(calls: SshCalls, tmp_path: Path) -> None:
    """The host has been told to start: a no to a later one would not undo it."""
    script(tmp_path, ASKS + "echo '{\"asks\": true}'; exit 255")
    answers = iter([True, False])
    with pytest.raises(HostUnreachableError) as caught:
        calls.ask("one", [], is_wanted=lambda: next(answers))
    assert caught.value.is_unknown


def test_a_refusal_has_the_words_of_the_host(calls: SshCalls, tmp_path: Path) -> None:
    script(tmp_path, "echo first >&2; echo no space left >&2; exit 1")
    with pytest.raises(HostRefusedError, match="one: no space left"):
        calls.ask("one", [])


@pytest.mark.parametrize(
    ("text", "is_unknown"),
    [
        ("echo Connection refused >&2; exit 255", False),
        (ASKS + "echo Broken pipe >&2; exit 255", True),
        ("echo Broken pipe >&2; exit 0", False),
    ],
)
def test_whether_a_start_may_have_happened_depends_on_what_the_host_was_told(
    calls: SshCalls, tmp_path: Path, text: str, *, is_unknown: bool
) -> None:
    script(tmp_path, text)
    with pytest.raises(HostUnreachableError, match=r"one cannot be reached: .*(refused|pipe)") as caught:
        calls.ask("one", [], is_wanted=lambda: True)
    assert caught.value.is_unknown is is_unknown


def test_a_host_that_was_told_no_has_started_nothing(calls: SshCalls, tmp_path: Path) -> None:
    script(tmp_path, ASKS + "exit 255")
    with pytest.raises(HostUnreachableError) as caught:
        calls.ask("one", [], is_wanted=lambda: False)
    assert not caught.value.is_unknown


def test_a_host_that_hangs_is_waited_for_no_longer_than_its_time(tmp_path: Path, calls: SshCalls) -> None:
    script(tmp_path, "exec sleep 1000")
    calls._timeout = 0.3
    with pytest.raises(HostUnreachableError, match="it has not answered in time"):
        calls.ask("one", [])


def test_so_is_one_that_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: SshCalls) -> None:
    (tmp_path / "path" / "ssh").write_text("#!/bin/bash\nexec sleep 1000\n")
    calls._timeout = 0.3
    with pytest.raises(HostUnreachableError, match="it has not answered in time"):
        calls.ask("one", ["x" * 1_000_000], is_wanted=lambda: True)


@pytest.mark.parametrize("where", ["", ">&2"])
def test_so_is_one_that_never_ends_to_speak(tmp_path: Path, calls: SshCalls, where: str) -> None:
    script(tmp_path, f"exec yes {where}")
    calls._timeout = 0.3
    with pytest.raises(HostUnreachableError, match="it has not answered in time"):
        calls.ask("one", [])


def test_of_what_a_host_says_only_a_part_is_kept(tmp_path: Path, calls: SshCalls) -> None:
    script(
        tmp_path, "head -c 30000000 /dev/zero >&2; head -c 30000000 /dev/zero; echo; printf '\\nno more' >&2; exit 3"
    )
    tracemalloc.start()
    try:
        with pytest.raises(HostRefusedError, match="no more"):
            calls.ask("one", [])
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_ssh_can_end_what_it_has_started_itself(tmp_path: Path, calls: SshCalls) -> None:
    """Such as its ProxyCommand, which nothing else would end."""
    trap = f"trap 'kill %1; echo > {tmp_path}/ended; exit 1' TERM"
    (tmp_path / "path" / "ssh").write_text(f"#!/bin/bash\n{trap}\nsleep 1000 & wait\n")
    calls._timeout = 0.5
    with pytest.raises(HostUnreachableError, match="in time"):
        calls.ask("one", [])
    assert (tmp_path / "ended").exists()


def test_a_host_without_ssh_says_so(calls: SshCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostRefusedError, match="there is no ssh on the JobManager's host"):
        calls.ask("one", [])


@pytest.mark.parametrize(("said", "expected"), [(b"go\n", True), (b"no\n", False), (b"", False), (None, False)])
def test_a_worker_is_wanted_by_who_says_so_in_time(
    monkeypatch: pytest.MonkeyPatch, said: bytes | None, *, expected: bool
) -> None:
    reads, writes = os.pipe()
    monkeypatch.setattr(worker_verbs, "ANSWER_WITHIN", 0.2)
    with os.fdopen(reads) as stdin, os.fdopen(writes, "wb", buffering=0) as host:
        monkeypatch.setattr(sys, "stdin", stdin)
        if said is not None:
            host.write(said)
            host.close() if not said else None
        assert worker_verbs._is_wanted() is expected


@pytest.mark.usefixtures("calls")
def test_a_script_that_says_very_much_costs_its_caller_little(tmp_path: Path) -> None:
    """`start-cluster.sh` and the like, which read what a host has said when its command has ended."""
    script(tmp_path, 'echo "{\\"process\\": \\"taskmanager\\"}"; head -c 60000000 /dev/zero | tr "\\0" x; exit 3')
    call = RemoteHosts(Layout(tmp_path, tmp_path, tmp_path), {}, ()).call("one", TASKMANAGER, ("stop-all",))
    call.process.wait(60)
    tracemalloc.start()
    try:
        with call.out, call.errors:
            with pytest.raises(DaemonError, match="taskmanager on one: Welcome"):
                call.is_done()
            assert call.instances() == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16_000_000

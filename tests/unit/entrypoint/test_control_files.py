"""Pid files that survive recycled pids, and host files that list every bad line."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.config import log_files
from runtime.config.layout import Layout
from runtime.entrypoint.control import airflow
from runtime.entrypoint.control.daemon import JOBMASTER, TASKMANAGER, Daemon, DaemonKind
from runtime.entrypoint.control.hosts import Host, read_hosts
from runtime.entrypoint.control.pending import DaemonError
from runtime.entrypoint.control.pid_file import PidFile, ProcessId, Record
from runtime.entrypoint.control.remote import RemoteHosts
from runtime.entrypoint.control.table import render_table
from runtime.system.directory_lock import hold


def test_a_start_moves_aside_what_the_last_one_printed(tmp_path: Path) -> None:
    daemon = Daemon(DaemonKind("probe", "platform"), Layout(tmp_path, tmp_path, tmp_path), os.environ, sys.stdout)
    out_file = daemon._log_file(0, "out")
    for name in "abcdefg":
        process, _ = daemon._launch([], 0)
        assert process.stdin is not None
        with process.stdin as go:
            go.write(b"\n")
        assert process.wait() == 0
        assert "Linux" in out_file.read_text()
        out_file.write_text(name)
    old = sorted(file for file in (tmp_path / "log").iterdir() if file != out_file)
    assert [(file.suffix, file.read_text()) for file in old] == [
        (f".{number}", name) for number, name in enumerate("fedcb", start=1)
    ]


def test_a_process_whose_starter_has_died_before_the_record_does_not_begin(tmp_path: Path) -> None:
    daemon = Daemon(DaemonKind("probe", "platform"), Layout(tmp_path, tmp_path, tmp_path), os.environ, sys.stdout)
    process, out_file = daemon._launch([], 0)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() == 1
    assert out_file.read_text() == ""


def test_a_start_that_cannot_be_recorded_leaves_no_process(tmp_path: Path) -> None:
    kind = DaemonKind("probe", "platform")
    daemon = Daemon(kind, Layout(tmp_path, tmp_path, tmp_path), os.environ, io.StringIO())
    (tmp_path / "pid" / "probe.tmp").mkdir(parents=True)
    with pytest.raises(OSError, match="probe"):
        daemon.spawn([])
    assert daemon._log_file(0, "out").read_text() == ""


def test_a_start_that_nobody_wants_any_more_is_none(tmp_path: Path) -> None:
    daemon = Daemon(DaemonKind("probe", "platform"), Layout(tmp_path, tmp_path, tmp_path), os.environ, io.StringIO())
    with pytest.raises(DaemonError, match="nobody wants it"):
        daemon.spawn([], is_wanted=lambda: False)
    assert daemon.records() == []


@pytest.mark.parametrize("verb", ["stop_all", "stop_last"])
def test_a_stop_deletes_what_a_killed_job_master_process_has_left(tmp_path: Path, verb: str) -> None:
    layout = Layout(tmp_path, tmp_path, tmp_path)
    living, dead = layout.work / "jobmaster" / ("1" * 32), layout.work / "jobmaster" / ("2" * 32)
    lock = hold(living)
    os.close(hold(dead))
    (dead / "object").write_bytes(b"x")
    daemon = Daemon(JOBMASTER, layout, os.environ, sys.stdout)
    getattr(daemon, verb)()
    assert (living.is_dir(), dead.exists()) == (True, False)
    os.close(lock)
    getattr(daemon, verb)()
    assert not living.exists()


def test_the_log_of_a_running_airflow_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airflow, "_LOG_INTERVAL", 0.01)
    monkeypatch.setattr(log_files, "SIZE_MAX", 3)
    log = tmp_path / "standalone.log"
    log.write_text("text")
    waits = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"
    process = subprocess.Popen([sys.executable, "-c", waits, f"{log}.1"])
    assert airflow._wait_ended(process, log) == 0
    assert log.read_text() == ""


def test_a_process_is_its_pid_and_its_start() -> None:
    me = ProcessId.of(os.getpid())
    assert me is not None
    assert me.is_running
    assert not ProcessId(me.pid, me.start_ticks - 1).is_running


def test_a_dead_or_zombie_process_does_not_run() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    record = ProcessId.of(child.pid)
    assert record is not None
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not record.is_running
    child.wait()
    assert ProcessId.of(child.pid) != record


def test_a_recycled_pid_is_not_ours(tmp_path: Path) -> None:
    pids = PidFile(tmp_path, "x")
    me = ProcessId.of(os.getpid())
    assert me is not None
    pids.write([Record(ProcessId(me.pid, 1), 0), Record(me, 1)])
    assert pids.running() == [Record(me, 1)]


def test_pid_file_goes_away_with_its_last_line_and_ignores_rubbish(tmp_path: Path) -> None:
    pids = PidFile(tmp_path, "x")
    (tmp_path / "x.pid").write_text("rubbish\n12\n7 8 1\n-1 2 0\n")
    assert pids.read() == [Record(ProcessId(7, 8), 1)]
    with pids.locked():
        pids.write([])
    assert not (tmp_path / "x.pid").exists()
    assert pids.read() == []


@pytest.mark.parametrize("damage", [b"", b"rubbish", b"\xff\xfe\x00", None])
def test_a_damaged_pid_file_hides_no_process_and_is_mended_by_the_next_write(
    tmp_path: Path, damage: bytes | None
) -> None:
    pids, path = PidFile(tmp_path, "x"), tmp_path / "x.pid"
    others = PidFile(tmp_path, "x-y")
    records = [Record(ProcessId(9, 1), 0), Record(ProcessId(7, 2), 1)]
    pids.write(records)
    others.write([Record(ProcessId(5, 3), 0)])
    whole = path.read_text()
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    assert pids.read() == records
    pids.write([*records, Record(ProcessId(8, 4), 2)])
    assert path.read_text() == f"{whole}8 4 2\n"
    (tmp_path / "x-1.record").write_text("")
    assert pids.read() == [*records, Record(ProcessId(8, 4), 2)]
    pids.write(records[:1])
    assert pids.read() == records[:1]
    pids.write([])
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x-y-0.record", "x-y.pid"]


def test_host_files(tmp_path: Path) -> None:
    path = tmp_path / "masters"
    path.write_text("# comment\n\nlocalhost:8081\n/rack/worker-1 # rack\nlocalhost\n")
    assert read_hosts(path) == [Host("localhost", 8081), Host("worker-1", 0), Host("localhost", 0)]
    assert [host.is_local for host in read_hosts(path)] == [True, False, True]


def test_bad_host_files_list_every_line(tmp_path: Path) -> None:
    path = tmp_path / "masters"
    path.write_text("a;b\nhost:99999\nfine\n$(reboot)\n")
    with pytest.raises(InvalidInputError) as caught:
        read_hosts(path)
    assert len(caught.value.problems) == 3
    for name in ("workers", "JOB_MASTERS"):  # a port there would be an option that its process does not have
        (tmp_path / name).write_text("localhost\nlocalhost:8081\n")
        with pytest.raises(InvalidInputError, match="2: 'localhost:8081': only hosts in conf/masters have a port here"):
            read_hosts(tmp_path / name)
    with pytest.raises(InvalidInputError, match="No missing file"):
        read_hosts(tmp_path / "missing")


@pytest.mark.parametrize(
    "line", ["-oProxyCommand=reboot", "--help", "-x", "user@-oA=b", "/rack/-oA=b", "a\x1bb", "é", "a b"]
)
def test_what_ssh_could_take_for_an_option_is_no_host(tmp_path: Path, line: str) -> None:
    """R41."""
    path = tmp_path / "JOB_MASTERS"
    path.write_text(f"{line}\n")
    with pytest.raises(InvalidInputError, match="is not a host"):
        read_hosts(path)


def test_a_host_stands_behind_the_end_of_the_options(tmp_path: Path) -> None:
    """R41: also one that an earlier release has recorded."""
    log = tmp_path / "log"
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nfor one; do echo "$one" >> {log}; done\n')
    ssh.chmod(0o755)
    layout = Layout(tmp_path, tmp_path, tmp_path)
    path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        call = RemoteHosts(layout, os.environ, ["-v"]).call("-oProxyCommand=reboot", TASKMANAGER, ("stop-all",))
        with call.out, call.errors:
            assert call.process.wait(20) == 0
    words = log.read_text().splitlines()
    assert words[0] == "-v"
    assert words[-3:] == ["--", "-oProxyCommand=reboot", "/bin/bash -l -s"]


def test_table() -> None:
    assert render_table(("a", "bb"), [("xxx", "y")]) == "a    bb\n---  --\nxxx  y"

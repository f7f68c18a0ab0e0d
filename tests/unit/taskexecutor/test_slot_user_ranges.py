"""R50: numbers of accounts are no slot's, and directories that slots use let them through."""

from __future__ import annotations

import grp
import os
import pwd
from contextlib import suppress
from pathlib import Path

import pytest

from runtime.common.ids import JobId
from runtime.taskexecutor.containment.users import Identity, SlotUsers, TaskUser, let_spark_append
from runtime.taskexecutor.directories.job_directory import JobDirectory
from runtime.taskexecutor.directories.job_users import JobUsers, SlotUsersError, _hand_over, _let_through, _show

ONE = JobId("1" * 32)
NOBODY = 65534


def job_users(run: Path, first: int, last: int) -> JobUsers:
    return JobUsers(SlotUsers(first, last, slots=2, processes_max=10), run, (), run)


@pytest.mark.parametrize(
    "number", sorted({65534, max(one.pw_uid for one in pwd.getpwall()), max(one.gr_gid for one in grp.getgrall())})
)
def test_a_range_with_an_account_is_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(SlotUsersError, match=rf"contains .*{number}.*: name a range|contains .*; name a range"):
        job_users(tmp_path, number - 3, number + 3).claim()


def test_a_range_with_a_group_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = max(one.gr_gid for one in grp.getgrall() if one.gr_gid != NOBODY)
    monkeypatch.setattr(pwd, "getpwall", list)
    with pytest.raises(SlotUsersError, match=rf"contains group .*\({number}\)"):
        job_users(tmp_path, number, number + 4).claim()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_what_tasks_may_do_to_what_is_made_for_them(tmp_path: Path) -> None:
    """The group of a job reads its code, and changes its working directory only; other users reach neither."""
    users = job_users(tmp_path, 23500, 23519)
    partitions = tmp_path / "exchange" / "job"
    users.open_partitions(ONE, partitions)
    gid = users._gid_of(ONE)
    assert (oct(partitions.stat().st_mode), partitions.stat().st_gid) == ("0o42775", gid)
    assert oct(partitions.parent.stat().st_mode) == "0o40711"
    logs, user = tmp_path / "logs", TaskUser(23501, gid, 23500, "", processes_max=1)
    users.open_logs(user, logs)
    assert [oct(path.stat().st_mode) for path in (logs, logs / "stdout")] == ["0o40711", "0o100600"]
    users.close_logs(logs)
    assert oct(logs.stat().st_mode) == "0o40700"
    root, code = tmp_path / "root", tmp_path / "code"
    for path in (root / "work" / "data.txt", root / "python" / "module.py", code):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        path.chmod(0o666)
    _hand_over(JobDirectory(root, root / "work", ()), gid, gid)
    _show(code, gid)
    assert oct((root / "work").stat().st_mode) == "0o42770"
    assert oct((root / "work" / "data.txt").stat().st_mode) == "0o100660"
    assert [oct((root / "python" / "module.py").stat().st_mode), oct(code.stat().st_mode)] == ["0o100640"] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_credentials_are_for_slots_alone(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir(mode=0o700)
    users = JobUsers(SlotUsers(23500, 23519, slots=2, processes_max=10), tmp_path, (), credentials)
    with suppress(SlotUsersError):  # Python may be closed to them here
        users.claim()
    assert (oct(credentials.stat().st_mode), credentials.stat().st_gid) == ("0o40750", 23500)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_what_a_task_makes_is_not_for_all() -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([12, 34])
            Identity().become(TaskUser(23501, 23503, 23500, "", processes_max=10))
            is_right = os.umask(0) == 0o002 and os.getgroups() == [23500] and os.getresuid() == (23501,) * 3
            code = 0 if is_right else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("is_within", [True, False])
def test_what_is_made_lets_through(tmp_path: Path, is_within: bool) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    exchange = (run if is_within else tmp_path) / "shared" / "exchange"
    before = os.umask(0o077)
    try:
        _let_through(run, exchange)
    finally:
        os.umask(before)
    assert [oct(path.stat().st_mode & 0o777) for path in (exchange, exchange.parent)] == ["0o711", "0o711"]
    assert oct(run.stat().st_mode & 0o777) == ("0o711" if is_within else "0o700")


def test_what_was_there_outside_of_the_run_directory_stays_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)
    _let_through(tmp_path / "run", shared)
    assert oct(shared.stat().st_mode & 0o777) == "0o700"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_spark_appends_to_what_a_task_prints_from_its_first_use_on_and_reads_none_of_it(tmp_path: Path) -> None:
    users = SlotUsers(23500, 23519, slots=2, processes_max=10, has_spark=True)
    gid = users.job_gids[0]
    JobUsers(users, tmp_path, (), tmp_path).open_logs(
        TaskUser(23501, gid, 23500, "", processes_max=1, spark_gids=users.spark_gids_of(0, gid)), tmp_path / "logs"
    )

    def found() -> dict[str, tuple[str, int]]:
        paths = (tmp_path / "logs").iterdir()
        return {path.name: (oct(path.stat().st_mode), path.stat().st_gid) for path in paths}

    closed, shared = (("0o100600", users.work_gid_of(gid)), ("0o100620", users.work_gid_of(gid)))
    assert found() == {"stdout": closed, "stderr": closed, "log": ("0o100600", gid)}
    let_spark_append(str(tmp_path / "logs"))
    assert found() == {"stdout": shared, "stderr": shared, "log": ("0o100600", gid)}

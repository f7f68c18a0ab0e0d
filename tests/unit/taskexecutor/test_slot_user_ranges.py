"""R50: numbers that are somebody's are no slot's, and directories that slots use let them through."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from runtime.taskexecutor.job_users import JobUsers, SlotUsersError, _let_through
from runtime.taskexecutor.slots.users import SlotUsers


def job_users(run: Path, first: int, last: int) -> JobUsers:
    return JobUsers(SlotUsers(first, last, slots=2, processes_max=10), run, (), run)


@pytest.mark.parametrize(
    "number", sorted({65534, max(one.pw_uid for one in pwd.getpwall()), max(one.gr_gid for one in grp.getgrall())})
)
def test_a_range_with_an_account_is_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(SlotUsersError, match=rf"contains .*{number}.*: name a range|contains .*; name a range"):
        job_users(tmp_path, number - 3, number + 3).claim()


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

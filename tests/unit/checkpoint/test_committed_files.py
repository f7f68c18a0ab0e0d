"""Which files of a query's directory belong to one committed batch, by table."""

from __future__ import annotations

import pytest

from runtime.checkpoint.savepoint.committed_files import (
    KEPT_BATCHES,
    MissingFilesError,
    batch_files,
    is_log,
    is_up_to,
    last_entry,
    log_files,
    source_files,
    state_files,
)


def names(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize(
    ("listed", "batch_id", "chosen"),
    [
        ("0", 0, "0"),
        ("0 1 2 3", 2, "0 1 2"),
        ("8 9 10 11", 10, "8 9 10"),
        ("3 x 4 5.tmp", 4, "3 4"),
    ],
)
def test_batches_end_with_the_committed_one(listed: str, batch_id: int, chosen: str) -> None:
    assert batch_files(names(listed), batch_id) == names(chosen)


def test_a_copy_has_the_last_batches_only() -> None:
    assert batch_files(map(str, range(100)), 90) == [str(number) for number in range(91 - KEPT_BATCHES, 91)]


@pytest.mark.parametrize("listed", ["", "0 1", "3"])
def test_a_batch_without_an_entry_is_missing(listed: str) -> None:
    with pytest.raises(MissingFilesError, match="batch 2"):
        batch_files(names(listed), 2)


@pytest.mark.parametrize(
    ("listed", "last", "chosen"),
    [
        ("0 1 2", 1, "0 1"),
        ("8 9.compact 10 11", 11, "9.compact 10 11"),
        ("8 9.compact 10 11", 9, "9.compact"),
        ("7 8 9 9.compact", 9, "9.compact"),
        ("7 8 9.compact", 8, "7 8"),
        ("9.compact 10 18 19.compact 20", 20, "19.compact 20"),
    ],
)
def test_a_log_begins_with_its_newest_compact_entry(listed: str, last: int, chosen: str) -> None:
    assert log_files(names(listed), last, must_reach=True) == names(chosen)


@pytest.mark.parametrize(
    ("listed", "last", "what"),
    [("0 1", 2, "no entry 2"), ("9.compact 11", 11, r"\[10\] are missing"), ("19.compact", 12, "no entry 12")],
)
def test_a_log_with_a_gap_is_not_taken(listed: str, last: int, what: str) -> None:
    with pytest.raises(MissingFilesError, match=what):
        log_files(names(listed), last, must_reach=True)


def test_a_log_of_a_source_may_have_gaps_of_its_own() -> None:
    assert log_files(names("0 5 7"), 7, must_reach=False) == names("0 5 7")
    assert log_files([], -1, must_reach=False) == []


@pytest.mark.parametrize(
    ("listed", "offset", "chosen"),
    [
        ("0 1 2 3", 1, "0 1"),
        ("8 9.compact 10 11", 10, "9.compact 10"),
        ("9.compact 10 11", 8, "9.compact 10 11"),
        ("5 6 7 8 9.compact", 8, "9.compact"),
        ("0 1 2 3", None, "0 1 2 3"),
        ("0 1 2 3", 7, "0 1 2 3"),
    ],
)
def test_a_log_of_a_source_ends_where_the_batch_has_read(listed: str, offset: int | None, chosen: str) -> None:
    """Or it is ahead, where entries before a compact one are gone: Spark reads them once more."""
    assert source_files(names(listed), last_entry(names(listed)), offset) == names(chosen)


def test_names_of_a_log() -> None:
    assert (last_entry([]), last_entry(names("3 9.compact 10")), last_entry(["x"])) == (-1, 10, -1)
    assert is_log(names("0 9.compact"))
    assert not is_log(names("0 x"))
    assert not is_log([])


@pytest.mark.parametrize(
    ("listed", "version", "chosen"),
    [
        ("1.delta 2.delta 3.delta", 2, "1.delta 2.delta"),
        ("1.delta 2.delta 2.snapshot 3.delta 4.delta", 3, "2.snapshot 3.delta"),
        ("8.delta 9.delta 9.snapshot", 9, "9.snapshot"),
        ("9.snapshot 10.delta 11.delta 11.snapshot", 10, "9.snapshot 10.delta"),
        ("3.zip 4.zip 5.zip", 4, "4.zip"),
        ("3.zip 3.changelog 4.changelog 5.changelog", 4, "3.zip 4.changelog"),
        ("1.changelog 2.changelog", 2, "1.changelog 2.changelog"),
        ("1_a.zip 2_b.changelog 2_c.changelog 3_d.zip", 2, "1_a.zip 2_b.changelog 2_c.changelog"),
    ],
)
def test_state_is_a_whole_version_and_the_changes_behind_it(listed: str, version: int, chosen: str) -> None:
    assert state_files(names(listed), version) == names(chosen)


@pytest.mark.parametrize(
    ("listed", "version"),
    [("1.delta 3.delta", 3), ("2.delta 3.delta", 3), ("5.snapshot 7.delta", 7), ("5.zip", 6), ("1_a.zip", 2)],
)
def test_state_that_does_not_lead_to_the_version_is_missing(listed: str, version: int) -> None:
    with pytest.raises(MissingFilesError):
        state_files(names(listed), version)


def test_another_kind_of_state_is_refused() -> None:
    with pytest.raises(ValueError, match="lsm"):
        state_files(names("1.delta 1.lsm"), 1)


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [("metadata", True), ("schema", True), ("5", True), ("6", False), ("5_0a-b", True), ("6_0a-b", False)],
)
def test_metadata_of_later_batches_is_left_out(name: str, is_taken: bool) -> None:
    assert is_up_to(name, 5) is is_taken

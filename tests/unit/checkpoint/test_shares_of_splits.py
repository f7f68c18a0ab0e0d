"""State goes with its splits: to any subtask that has exactly those, and to none that has others too (R60)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.checkpoint.savepoint.query_copy import copy_query
from runtime.checkpoint.savepoint.query_restore import QueryToRestore, restore_query
from runtime.checkpoint.savepoint.savepoint_files import finish_savepoint, part_path, savepoint_name
from runtime.checkpoint.savepoint.savepoint_form import QuerySnapshot, Savepoint, SavepointQuery
from runtime.checkpoint.savepoint.shares import QueryShape, matched
from runtime.common.errors import InvalidInputError
from runtime.jobgraph.splits import share_of, split_name
from tests.kit.checkpoint.query_directories import query_directory

JOB = "0123456789" * 3


def saved(parallelism: int, splits: str) -> list[SavepointQuery]:
    """The subtasks of a query with these splits, a letter each."""
    return [
        SavepointQuery(
            uid="orders",
            subtask_index=index,
            parallelism=parallelism,
            splits=tuple(share_of(splits, index, parallelism)),
            snapshot=QuerySnapshot(),
        )
        for index in range(parallelism)
    ]


def numbers(before: list[SavepointQuery], parallelism: int, splits: str, *, allows: bool = False) -> dict[int, int]:
    """For each subtask of the job the number that it had."""
    found = matched(before, QueryShape(parallelism, tuple(splits)), allow_non_restored_state=allows)
    return {index: query.subtask_index for index, query in found.items()}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((2, "ab"), (2, "ab"), {0: 0, 1: 1}),
        ((2, "ab"), (2, "ba"), {0: 1, 1: 0}),  # told by number, each would read what the other has read
        ((2, "ab"), (3, "abc"), {0: 0, 1: 1}),  # the third begins
        ((2, "ab"), (3, "cab"), {1: 0, 2: 1}),
        ((2, "abcd"), (2, "cbad"), {0: 0, 1: 1}),  # within a share the order is of no matter
        ((2, "abcd"), (3, "abecd"), {0: 0, 1: 1}),  # a and c, b and d, and e
        ((2, "abcd"), (3, "abcde"), None),  # a and d
        ((2, "abcd"), (4, "abcd"), None),
        ((4, "abcd"), (2, "abcd"), None),
        ((3, "abc"), (2, "ab"), None),
        ((2, "ab"), (2, "ac"), None),
        ((1, ""), (1, "ab"), {0: 0}),  # it had no splits
        ((1, "ab"), (1, ""), {0: 0}),
        ((2, ""), (3, "abc"), None),
        ((2, "aa"), (2, "aa"), {0: 0, 1: 1}),  # they cannot be told apart
        ((2, "aa"), (3, "aaa"), None),
    ],
)
def test_a_subtask_goes_on_with_the_state_of_its_splits(
    before: tuple[int, str], after: tuple[int, str], expected: dict[int, int] | None
) -> None:
    if expected is None:
        with pytest.raises(InvalidInputError):
            numbers(saved(*before), *after)
    else:
        assert numbers(saved(*before), *after) == expected


def test_splits_that_are_gone_are_left_behind_when_that_is_allowed() -> None:
    with pytest.raises(InvalidInputError, match="for the splits c, which the job does not have"):
        numbers(saved(3, "abc"), 2, "ab")
    assert numbers(saved(3, "abc"), 2, "ab", allows=True) == {0: 0, 1: 1}
    with pytest.raises(InvalidInputError, match=r"splits a, c together, and subtask 0 of the job has a, b"):
        numbers(saved(2, "abcd"), 1, "ab", allows=True)


@given(
    st.integers(1, 5), st.permutations("abcdefgh"), st.integers(1, 8), st.permutations("abcdefghij"), st.integers(1, 10)
)
def test_no_split_meets_the_state_of_others(
    parallelism: int, first: list[str], n: int, then: list[str], m: int
) -> None:
    before, after = saved(parallelism, "".join(first[:8])), "".join(then[:m])
    try:
        found = numbers(before, n, after, allows=True)
    except InvalidInputError:
        return
    known = set(first)
    for index in range(n):
        own = set(share_of(after, index, n))
        if index in found:
            assert own == set(before[found[index]].splits)
        else:
            assert not own & known, "it would read again what was read"


def test_each_split_has_a_name_of_its_own() -> None:
    names = [split_name(one) for one in (1, "1", [1], {"a": 1, "b": 2}, "x" * 300, "y" * 300, None)]
    assert len(set(names)) == len(names)
    assert split_name({"b": 2, "a": 1}) == split_name({"a": 1, "b": 2})
    assert max(map(len, names)) < 100


def test_the_directory_is_that_of_the_splits(tmp_path: Path) -> None:
    part = part_path(tmp_path / "savepoints", savepoint_name(JOB, "a" * 12))
    queries = []
    for index, split in enumerate("ab"):
        query = query_directory(tmp_path / "queries" / split, batches=3 + index)
        snapshot = copy_query(query, part / "orders" / str(index), 2 + index, None)
        queries.append(
            SavepointQuery(uid="orders", subtask_index=index, parallelism=2, splits=(split,), snapshot=snapshot)
        )
    path = finish_savepoint(
        part,
        Savepoint(
            job_id=JOB, job_name="o", checkpoint_id=1, trigger_millis=1, software_version="1", queries=tuple(queries)
        ),
    )
    batches = []
    for index in range(3):
        directory = tmp_path / "job" / "orders" / str(index)
        shape = QueryShape(3, ("b", "c", "a"))
        restored = restore_query(path, QueryToRestore(directory, "orders", index, {"orders": shape}, job_id="b" * 32))
        assert restored is not None
        batches.append(restored.batch_id)
        assert (directory / "offsets").exists() == (index != 1)
    assert batches == [3, -1, 2]

"""R66: how many subtasks a vertex gets for what it reads, and which part of it each of them gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.exchange import InputShare
from runtime.scheduler.core.parallelism.choice import Choice, InputSize, choose
from runtime.scheduler.core.parallelism.settings import AdaptiveSettings

MIB = 1 << 20
SETTINGS = AdaptiveSettings(bytes_per_task=16 * MIB)


def sizes(
    *mib: int, rows: int = 0, index: int = 0, splittable: bool = False, broadcast_below: int | None = None
) -> InputSize:
    """A divided input with so many MiB in each subpartition."""
    return InputSize(
        index,
        f"input-{index}",
        tuple(one * MIB for one in mib),
        rows,
        is_divided=True,
        is_splittable=splittable,
        broadcast_below=broadcast_below,
    )


def whole(mib: int, index: int = 0) -> InputSize:
    """An input that each subtask reads."""
    return InputSize(index, f"input-{index}", (mib * MIB,), 1, is_divided=False)


def chosen(*inputs: InputSize, settings: AdaptiveSettings = SETTINGS, required: int | None = None) -> Choice:
    count = max(len(one.sizes) for one in inputs)
    return choose(inputs, settings, subpartitions=count, required=required)


def ranges(choice: Choice) -> list[tuple[int, int]]:
    return [(share.first, share.end) for share in choice.shares]


@pytest.mark.parametrize(
    ("given_sizes", "expected"),
    [
        pytest.param((0, 0, 0, 0), [(0, 4)], id="no rows: one subtask"),
        pytest.param((1, 1, 1, 1), [(0, 4)], id="little: one subtask"),
        pytest.param((16, 16, 16, 16), [(0, 1), (1, 2), (2, 3), (3, 4)], id="each is a share"),
        pytest.param((8, 8, 8, 8), [(0, 2), (2, 4)], id="neighbours are joined"),
        pytest.param((30, 1, 1, 1), [(0, 1), (1, 4)], id="a large one is alone, small ones are together"),
        pytest.param((1, 1, 1, 30), [(0, 3), (3, 4)], id="also at the end"),
        pytest.param((64, 0, 0, 0), [(0, 4)], id="one key alone cannot be divided"),
    ],
)
def test_ranges_are_about_equally_large(given_sizes: tuple[int, ...], expected: list[tuple[int, int]]) -> None:
    assert ranges(chosen(sizes(*given_sizes))) == expected


def test_inputs_that_are_read_together_count_together() -> None:
    assert ranges(chosen(sizes(8, 8), sizes(8, 8, index=1))) == [(0, 1), (1, 2)]


def test_what_each_subtask_reads_asks_for_no_more_of_them() -> None:
    assert len(chosen(sizes(1, 1), whole(1000, index=1)).shares) == 1


def test_a_vertex_that_divides_nothing_runs_once() -> None:
    choice = choose([whole(1000)], SETTINGS, subpartitions=128)
    assert choice.shares == (InputShare(0, 128),)
    assert "each subtask would read the same" in choice.reason


def test_rows_count_where_the_vertex_says_so() -> None:
    data = [sizes(1, 1, 1, 1, rows=4_000)]
    assert len(choose(data, SETTINGS, subpartitions=4, rows_per_task=1_000).shares) == 4
    assert "one for each 1000 rows" in choose(data, SETTINGS, subpartitions=4, rows_per_task=1_000).reason
    assert len(choose(data, SETTINGS, subpartitions=4).shares) == 1


def test_bounds_hold() -> None:
    data = sizes(*([128] * 8))
    assert len(chosen(data, settings=AdaptiveSettings(parallelism_max=3)).shares) == 3
    assert len(chosen(sizes(*([1] * 8)), settings=AdaptiveSettings(parallelism_min=4)).shares) == 4


def test_where_nothing_is_to_be_chosen_the_default_holds() -> None:
    choice = chosen(sizes(16, 16, 16, 16), settings=AdaptiveSettings(is_enabled=False, parallelism_default=2))
    assert ranges(choice) == [(0, 2), (2, 4)]
    assert "parallelism.default" in choice.reason


def test_forward_edges_dictate_exactly() -> None:
    choice = chosen(sizes(16, 16, 16, 16), required=6)
    assert ranges(choice) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 4), (4, 4)]
    assert "forward edges" in choice.reason


def test_a_key_with_many_rows_is_divided_where_its_edge_allows_it() -> None:
    """60 % of the rows have one key: of four subtasks, two and a bit are for it."""
    data = [1] * 7 + [48] + [1] * 8 + [15]
    choice = chosen(sizes(*data, splittable=True), sizes(*([0] * 17), index=1))
    split = [share for share in choice.shares if share.parts > 1]
    assert [(one.first, one.end, one.part, one.parts, one.split_input) for one in split] == [
        (7, 8, part, len(split), 0) for part in range(len(split))
    ]
    assert len(split) >= 2
    assert "share keys with many rows" in choice.reason
    assert not [share for share in chosen(sizes(*data)).shares if share.parts > 1], "its edge does not allow it"


def test_what_lies_beside_a_divided_key_is_no_larger_a_share_for_that() -> None:
    """Its parts leave two of seven subtasks, and on one side of it is most of the rest."""
    data = [4, 60, *[4] * 9]
    choice = chosen(sizes(*data, splittable=True))
    beside = [sum(data[one.first : one.end]) for one in choice.shares if one.parts == 1]
    assert (len(choice.shares) - len(beside), beside) == (5, [4, 12, 12, 12])
    most = chosen(sizes(*data, splittable=True), settings=AdaptiveSettings(bytes_per_task=16 * MIB, parallelism_max=7))
    assert len(most.shares) == 7


def test_a_small_input_is_broadcast_and_frees_the_rows_of_the_other() -> None:
    data = [1] * 7 + [48] + [1] * 8
    choice = chosen(sizes(*data), sizes(*([1] * 16), index=1, broadcast_below=20 * MIB))
    assert choice.broadcast == (1,)
    assert any(share.parts > 1 and share.split_input == 0 for share in choice.shares)
    assert "'input-1' broadcast" in choice.reason
    too_large = chosen(sizes(*data), sizes(*([1] * 16), index=1, broadcast_below=16 * MIB))
    assert too_large.broadcast == ()


def test_one_input_stays_divided() -> None:
    """Of two small inputs only the smaller one is broadcast: else each row would be read by each subtask."""
    choice = chosen(sizes(1, 1, broadcast_below=MIB * 10), sizes(2, 2, index=1, broadcast_below=MIB * 10))
    assert choice.broadcast == (0,)


def test_a_source_has_a_subtask_for_each_split_that_was_found() -> None:
    found = InputSize(0, "splits of orders", (20,), 0, is_divided=False, splits=5)
    assert choose([found], SETTINGS, subpartitions=128).reason == "5: 5 splits, one each"
    assert len(choose([found], SETTINGS, subpartitions=3).shares) == 3
    assert len(choose([found], SETTINGS, subpartitions=128, most=4).shares) == 4, "its forward group allows no more"
    none = InputSize(0, "splits of orders", (2,), 0, is_divided=False, splits=0)
    assert len(choose([none], SETTINGS, subpartitions=128).shares) == 1
    assert len(choose([found], AdaptiveSettings(is_enabled=False), subpartitions=128).shares) == 5


def test_the_largest_of_several_splittable_inputs_is_divided() -> None:
    large = [0] * 3 + [96] + [1] * 4
    small = [0] * 3 + [40] + [1] * 4
    choice = chosen(sizes(*small, splittable=True), sizes(*large, index=1, splittable=True))
    assert {share.split_input for share in choice.shares if share.parts > 1} == {1}


def test_what_others_bring_is_not_divided() -> None:
    """Each part would read all of it: with few own rows there is nothing to gain."""
    own = sizes(*([1] * 8), splittable=True)
    other = sizes(*([0] * 3 + [96] + [1] * 4), index=1)
    assert not [share for share in chosen(own, other).shares if share.parts > 1]


def test_parts_stay_within_the_maximum() -> None:
    data = sizes(1, 1000, 5, 900, 1, splittable=True)
    for most in range(1, 9):
        assert len(chosen(data, settings=AdaptiveSettings(parallelism_max=most)).shares) <= most


SIZES = st.lists(st.integers(0, 100), min_size=1, max_size=40)


@given(
    data=SIZES,
    other=st.booleans(),
    splittable=st.booleans(),
    bytes_per_task=st.integers(1, 200),
    bounds=st.tuples(st.integers(1, 10), st.integers(1, 60)),
    required=st.none() | st.integers(1, 50),
    enabled=st.booleans(),
)
def test_each_row_is_read_once(
    *,
    data: Sequence[int],
    other: bool,
    splittable: bool,
    bytes_per_task: int,
    bounds: tuple[int, int],
    required: int | None,
    enabled: bool,
) -> None:
    """R66: subpartitions without gap or overlap, and of a divided one each part."""
    settings = AdaptiveSettings(enabled, min(bounds), max(bounds), bytes_per_task, 3)
    first = InputSize(0, "a", tuple(data), 5, is_divided=True, is_splittable=splittable)
    second = InputSize(1, "b", tuple(data[::-1]), 5, is_divided=True, is_splittable=False)
    inputs = [first, second] if other else [first]
    choice = choose(inputs, settings, subpartitions=len(data), required=required)
    parts = Counter((share.first, share.end, share.parts) for share in choice.shares if share.first < share.end)
    assert all(count == parts_of for (_, _, parts_of), count in parts.items())
    covered = sorted({(share.first, share.end) for share in choice.shares if share.first < share.end})
    assert covered[0][0] == 0
    assert covered[-1][1] == len(data)
    assert all(before[1] == after[0] for before, after in pairwise(covered))
    if required is not None:
        assert len(choice.shares) == required
    else:
        assert len(choice.shares) <= max(*bounds, 3)
    assert all(share.split_input == 0 for share in choice.shares if share.parts > 1)

"""Positions in logs: small, and equal after a way through JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.errors import InvalidInputError
from runtime.common.log_position import STREAMS, AttemptKey, LogPosition

VERTEX = "a" * 32
KEYS = st.builds(AttemptKey, st.sampled_from(["a" * 32, "b" * 32]), st.integers(0, 40), st.integers(0, 2))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("move"), KEYS, st.sampled_from(STREAMS), st.integers(0, 1 << 40)),
        st.tuples(st.just("drain"), KEYS),
    )
)


def through_json(position: LogPosition) -> LogPosition:
    return LogPosition.from_json(json.loads(json.dumps(position.to_json())))


@given(STEPS)
def test_nothing_is_lost_on_the_way(steps: list[tuple[object, ...]]) -> None:
    position = LogPosition()
    drained: set[AttemptKey] = set()
    offsets: dict[tuple[AttemptKey, str], int] = {}
    for kind, key, *more in steps:
        assert isinstance(key, AttemptKey)
        if kind == "drain":
            position.drain(key)
            drained.add(key)
            offsets = {one: value for one, value in offsets.items() if one[0] != key}
        elif key not in drained:
            stream, offset = more
            assert isinstance(stream, str)
            assert isinstance(offset, int)
            position.move(key, stream, offset)
            offsets[key, stream] = offset
        position = through_json(position)
        for one in drained | {key}:
            assert position.is_drained(one) == (one in drained)
        for (one, name), value in offsets.items():
            assert position.offset(one, name) == value


def test_the_beginning_is_empty() -> None:
    assert LogPosition().to_json() == {}
    position = LogPosition()
    position.move(AttemptKey(VERTEX, 0, 0), "stdout", 0)
    assert position.to_json() == {}


def test_a_thousand_read_attempts_take_no_space() -> None:
    position = LogPosition()
    for subtask in range(1_000):
        position.move(AttemptKey(VERTEX, subtask, 0), "stdout", 10_000)
        position.drain(AttemptKey(VERTEX, subtask, 0))
    position.drain(AttemptKey(VERTEX, 5_000, 0))
    assert position.to_json() == {"drained": [[VERTEX, 0, "0-999,5000"]]}
    assert position.live == 0


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"live": 1},
        {"live": [["v", 0, 0, 1, 2]]},
        {"live": [["v", 0, 0, "x", 0, 0]]},
        {"drained": [["v", 0, "5-3"]]},
        {"drained": [["v", 0, "0-99999999999"]]},
        {"drained": [["v", 0, 7]]},
        {"drained": [["v", 0, ""]]},
        {"live": [["v", 0, 0, 1, 1, 1]] * 10_001},
    ],
)
def test_what_was_never_given_out_is_refused(document: object) -> None:
    with pytest.raises(InvalidInputError):
        LogPosition.from_json(document)

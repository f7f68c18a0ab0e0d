"""Which Spark environments fit beside each other, and which give way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.common.spark_environments import EnvironmentSpec
from runtime.taskexecutor.spark.environment_room import Claim, EnvironmentRoom, Lease, Step


def spec(key: str, memory_bytes: int = 4) -> EnvironmentSpec:
    return EnvironmentSpec(key, {"spark.x": key}, 0, memory_bytes)


def started(room: EnvironmentRoom, key: str, memory_bytes: int = 4, at: float = 0.0) -> Lease:
    claim = room.claim(spec(key, memory_bytes), at)
    assert claim.step is Step.START
    assert claim.lease is not None
    return claim.lease


def used(room: EnvironmentRoom) -> dict[str, int]:
    return {status.key: status.users for status in room.statuses()}


def test_tasks_with_the_same_conf_share_one() -> None:
    room = EnvironmentRoom(10)
    first = started(room, "a")
    second = room.claim(spec("a"), 1.0)
    assert (second.step, second.lease) == (Step.USE, first)
    assert used(room) == {"a": 2}


def test_the_one_that_was_used_least_recently_gives_way() -> None:
    room = EnvironmentRoom(12)
    leases = [started(room, key) for key in "abc"]
    for at, lease in zip((3.0, 1.0, 2.0), leases, strict=True):
        room.release(lease, at)
    assert room.claim(spec("d"), 4.0) == Claim(Step.WAIT, ending=("b",))
    assert room.claim(spec("d"), 4.0) == Claim(Step.WAIT), "it is ending already"
    room.remove("b")
    assert room.claim(spec("d"), 4.0).step is Step.START


def test_as_many_give_way_as_are_needed_and_none_where_that_is_not_enough() -> None:
    room = EnvironmentRoom(12)
    first, second, third = (started(room, key) for key in "abc")
    room.release(first, 1.0)
    assert room.claim(spec("d", 8), 2.0) == Claim(Step.WAIT), "two are used"
    room.release(second, 2.0)
    assert room.claim(spec("d", 8), 3.0) == Claim(Step.WAIT, ending=("a", "b"))
    assert used(room) == {"c": 1}
    room.release(third, 3.0)


def test_where_each_has_an_account_their_number_is_bounded_too() -> None:
    room = EnvironmentRoom(100, count_max=2)
    first, second = (started(room, key) for key in "ab")
    assert room.claim(spec("c"), 1.0) == Claim(Step.WAIT), "both are used"
    room.release(second, 1.0)
    room.release(first, 2.0)
    assert room.claim(spec("c"), 3.0) == Claim(Step.WAIT, ending=("b",))
    assert room.claim(spec("c"), 3.0) == Claim(Step.WAIT), "one is enough"
    room.remove("b")
    assert room.claim(spec("c"), 4.0).step is Step.START


def test_one_that_ends_is_waited_for_and_started_again() -> None:
    room = EnvironmentRoom(4)
    lease = started(room, "a")
    room.release(lease, 1.0)
    assert room.expire(10.0, 9.0) == ["a"]
    assert room.claim(spec("a"), 10.0) == Claim(Step.WAIT)
    assert not room.renew(lease)
    room.remove("a")
    assert started(room, "a", at=11.0) != lease


def test_a_lease_of_one_that_is_lost_counts_for_nothing_in_the_next() -> None:
    room = EnvironmentRoom(4)
    old = started(room, "a")
    room.remove("a")
    new = started(room, "a")
    room.release(old, 1.0)
    assert used(room) == {"a": 1}
    assert not room.renew(old)
    room.release(new, 2.0)
    assert room.renew(new)
    assert used(room) == {"a": 1}


def test_only_unused_ones_expire() -> None:
    room = EnvironmentRoom(12)
    first, _second = started(room, "a"), started(room, "b")
    room.release(first, 5.0)
    assert room.expire(13.9, 9.0) == []
    assert room.expire(14.0, 9.0) == ["a"]
    assert room.expire(99.0, 9.0) == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["claim", "release", "end", "expire"]), st.sampled_from("abcd"), st.integers(1, 9)),
        max_size=60,
    )
)
def test_no_more_memory_is_taken_than_there_is_and_no_used_one_gives_way(steps: list[tuple[str, str, int]]) -> None:
    room, sizes = EnvironmentRoom(12), dict(zip("abcd", (3, 4, 5, 9), strict=True))
    living: dict[str, int] = {}
    leases: dict[str, list[Lease]] = {key: [] for key in "abcd"}
    ending: set[str] = set()
    for now, (what, key, number) in enumerate(steps):
        match what:
            case "claim":
                claim = room.claim(spec(key, sizes[key]), now)
                assert (claim.lease is None) == (claim.step is Step.WAIT)
                assert not any(leases[one] for one in claim.ending)
                ending |= set(claim.ending)
                if claim.lease is not None:
                    living.setdefault(key, sizes[key])
                    leases[key].append(claim.lease)
            case "release" if leases[key]:
                room.release(leases[key].pop(), now)
            case "end" if key in living and (key in ending or number == 1):  # it ends as asked, or is lost
                room.remove(key)
                living.pop(key)
                ending.discard(key)
                leases[key].clear()
            case "expire":
                due = room.expire(now, number)
                assert not any(leases[one] for one in due)
                ending |= set(due)
            case _:
                pass
        assert sum(living.values()) <= 12
        assert used(room) == {one: len(leases[one]) for one in living if one not in ending}

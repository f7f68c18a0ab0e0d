"""The bounded number of events: what is kept, what is counted, what is given to the store (D-114)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import pytest

from runtime.dispatcher.core.kept_events import (
    AT_ONCE_MAX,
    BATCH_MAX,
    BYTES_MAX,
    EVENTS_MAX,
    MESSAGE_MAX,
    OF_KIND_MAX,
    OF_SUBJECT_MAX,
    WINDOW_SECONDS,
    EventGate,
    KeptEvents,
    bounded,
)
from runtime.gateways.cluster_events import ClusterEvent, EventKind

KINDS = tuple(EventKind)
NUMBERS: Iterator[int] = count()


def event(
    kind: EventKind = EventKind.JOB_TAKEN_OVER, subject: str = "", namespace: str = "", text: str = "m"
) -> ClusterEvent:
    return ClusterEvent(f"{next(NUMBERS):016x}", 1, kind, text, subject, "", namespace)


def all_of(held: KeptEvents) -> list[str]:
    return [one.message for one in held]


def written(held: KeptEvents) -> tuple[list[ClusterEvent], list[str]]:
    """All batches: events and deleted keys."""
    puts: list[ClusterEvent] = []
    deletes: list[str] = []
    while (batch := held.take_batch()) is not None:
        assert len(batch.puts) <= BATCH_MAX
        assert len(batch.deletes) <= BATCH_MAX
        puts += [one for _, one in batch.puts]
        deletes += batch.deletes
    return puts, deletes


def test_one_kind_pushes_out_only_its_like() -> None:
    held = KeptEvents(7)
    held.add(event(EventKind.LEADER_ELECTED, text="leader"))
    for number in range(3 * OF_KIND_MAX):
        held.add(event(EventKind.TASKMANAGER_REGISTERED, text=str(number)))
    assert all_of(held) == ["leader", *(str(number) for number in range(2 * OF_KIND_MAX, 3 * OF_KIND_MAX))]


def test_the_number_of_all_events_is_bounded_and_the_oldest_goes() -> None:
    held = KeptEvents(7)
    for number in range(2 * EVENTS_MAX):
        held.add(event(KINDS[number % len(KINDS)], text=str(number)))
    assert all_of(held) == [str(number) for number in range(EVENTS_MAX, 2 * EVENTS_MAX)]


def test_the_bytes_of_all_events_are_bounded() -> None:
    held = KeptEvents(7)
    for number in range(EVENTS_MAX):
        held.add(event(KINDS[number % len(KINDS)], text="x" * MESSAGE_MAX))
    assert BYTES_MAX // (MESSAGE_MAX + 300) - 1 <= len(all_of(held)) <= BYTES_MAX // MESSAGE_MAX


def test_each_event_is_given_to_the_store_once_and_what_is_dropped_is_deleted_there() -> None:
    held = KeptEvents(7)
    first = [event(EventKind.JOB_TAKEN_OVER, text=str(number)) for number in range(OF_KIND_MAX)]
    for one in first:
        held.add(one)
    assert written(held) == (first, [])
    assert held.take_batch() is None
    later = [event(EventKind.JOB_TAKEN_OVER) for _ in range(40)]
    for one in later:
        held.add(one)
    puts, deletes = written(held)
    assert puts == later
    assert deletes == [f"{7:016d}-{number:08d}" for number in range(40)]


def test_what_was_dropped_before_it_was_stored_is_not_stored() -> None:
    held = KeptEvents(7)
    for number in range(OF_KIND_MAX + 5):
        held.add(event(text=str(number)))
    puts, deletes = written(held)
    assert ([one.message for one in puts], deletes) == ([str(number) for number in range(5, OF_KIND_MAX + 5)], [])


def test_a_batch_that_was_not_written_is_written_again_under_other_keys() -> None:
    held = KeptEvents(7)
    held.add(event(text="a"))
    batch = held.take_batch()
    assert batch is not None
    held.put_back(batch)
    again = held.take_batch()
    assert again is not None
    assert [one.message for _, one in again.puts] == ["a"]
    assert {key for key, _ in again.puts}.isdisjoint(key for key, _ in batch.puts), "R33: a late repeat finds nothing"


def test_a_later_term_goes_on_and_its_keys_are_behind() -> None:
    first = KeptEvents(7)
    for number in range(3):
        first.add(event(text=str(number)))
    batch = first.take_batch()
    assert batch is not None
    second = KeptEvents(12)
    second.recover(batch.puts, ["odd"])
    second.add(event(text="3"))
    assert all_of(second) == ["0", "1", "2", "3"]
    later = second.take_batch()
    assert later is not None
    assert (later.deletes, later.puts[0][0] > batch.puts[-1][0]) == (["odd"], True)


def test_an_id_that_is_stored_twice_is_read_once() -> None:
    one = event(text="a")
    held = KeptEvents(7)
    held.recover([("1", one), ("2", one)])
    batch = held.take_batch()
    assert (all_of(held), batch is not None and batch.deletes) == (["a"], ["2"])


@pytest.mark.parametrize(
    ("told", "kind", "is_news"),
    [
        ([], EventKind.TASKMANAGER_REGISTERED, True),
        ([EventKind.TASKMANAGER_REGISTERED], EventKind.TASKMANAGER_REGISTERED, False),
        ([EventKind.TASKMANAGER_REGISTERED, EventKind.TASKMANAGER_LOST], EventKind.TASKMANAGER_REGISTERED, True),
        ([EventKind.TASKMANAGER_REGISTERED, EventKind.TASKMANAGER_DRAINING], EventKind.TASKMANAGER_REGISTERED, False),
        ([], EventKind.TASKMANAGER_UNDRAINED, False),
        ([EventKind.TASKMANAGER_DRAINING], EventKind.TASKMANAGER_UNDRAINED, True),
        ([EventKind.TASKMANAGER_DRAINING], EventKind.TASKMANAGER_DRAINING, False),
        ([], EventKind.STORE_HAS_ROOM, False),
        ([EventKind.STORE_FULL], EventKind.STORE_HAS_ROOM, True),
        ([EventKind.JOB_TAKEN_OVER], EventKind.JOB_TAKEN_OVER, True),
        ([EventKind.JOB_CANCELLED], EventKind.JOB_CANCELLED, False),
        ([EventKind.LEADER_ELECTED], EventKind.LEADER_ELECTED, True),
    ],
)
def test_what_is_so_already_is_no_news(told: list[EventKind], kind: EventKind, is_news: bool) -> None:
    held = KeptEvents(7)
    for one in told:
        held.add(event(one, "p"))
    assert held.is_news(kind, "p") is is_news
    assert held.is_news(EventKind.TASKMANAGER_REGISTERED, "another")


def test_the_next_leader_knows_what_was_told() -> None:
    held = KeptEvents(12)
    held.recover([("1", event(EventKind.TASKMANAGER_REGISTERED, "p"))])
    assert not held.is_news(EventKind.TASKMANAGER_REGISTERED, "p")


class TestPages:
    def test_the_newest_ones_and_then_what_is_behind(self) -> None:
        held = KeptEvents(7)
        for number in range(10):
            held.add(event(text=str(number)))
        page = held.page(lambda _: True, "", 3)
        assert ([one.message for one in page.events], page.has_gap) == (["7", "8", "9"], False)
        ids = [one.id for one in held]
        page = held.page(lambda _: True, ids[1], 3)
        assert ([one.message for one in page.events], page.has_gap) == (["2", "3", "4"], False)
        assert held.page(lambda _: True, ids[-1], 3).events == []

    def test_one_that_is_gone_is_a_gap(self) -> None:
        held = KeptEvents(7)
        held.add(event(text="a"))
        page = held.page(lambda _: True, "gone", 3)
        assert ([one.message for one in page.events], page.has_gap) == (["a"], True)

    def test_nobody_sees_or_names_an_event_of_another_namespace(self) -> None:
        held = KeptEvents(7)
        for namespace in ("", "a", "b"):
            held.add(event(namespace=namespace, text=namespace or "all"))
        hidden = [one.id for one in held][2]
        page = held.page(lambda namespace: namespace in {"", "a"}, "", 10)
        assert [one.message for one in page.events] == ["all", "a"]
        as_unknown = held.page(lambda namespace: namespace in {"", "a"}, hidden, 10)
        assert as_unknown.has_gap, "its answer is that for an unknown id"


class TestFloods:
    def test_a_process_that_flaps_is_counted(self) -> None:
        gate = EventGate()
        flaps = [gate.takes(event(EventKind.TASKMANAGER_LOST, "p"), 100.0) for _ in range(20)]
        assert sum(flaps) == OF_SUBJECT_MAX
        assert gate.takes(event(EventKind.TASKMANAGER_LOST, "another"), 100.0)
        assert gate.close_old_window(100.0 + WINDOW_SECONDS / 2) == ()
        assert gate.close_old_window(100.0 + WINDOW_SECONDS) == [(EventKind.TASKMANAGER_LOST, "", 20 - OF_SUBJECT_MAX)]
        assert gate.takes(event(EventKind.TASKMANAGER_LOST, "p"), 200.0)

    def test_many_new_processes_of_a_kind_are_counted_too(self) -> None:
        gate = EventGate()
        taken = [gate.takes(event(EventKind.JOB_TAKEN_OVER, str(number), "a"), 0.0) for number in range(1000)]
        assert sum(taken) == AT_ONCE_MAX
        assert gate.takes(event(EventKind.JOB_TAKEN_OVER, "x", "b"), 0.0), "of another namespace"
        assert gate.takes(event(EventKind.LEADER_ELECTED), 0.0)
        assert gate.close_old_window(WINDOW_SECONDS) == [(EventKind.JOB_TAKEN_OVER, "a", 1000 - AT_ONCE_MAX)]


@pytest.mark.parametrize("text", ["", "short", "x" * 5000, "\u20ac" * 5000, "\x1b[31m\n" * 3000, "\ud800" * 900])
def test_a_message_is_a_bounded_line(text: str) -> None:
    line = bounded(text)
    assert len(json.dumps(line)) - 2 <= MESSAGE_MAX
    assert not any(ord(character) < 32 for character in line)
    assert line[:3] == text[:3] or not text.isprintable()

"""R39: a connection without the cluster's token is bounded in time and bytes, one that has shown it is not."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from runtime.rpc.core.strangers import Connection, StrangerLimits, Strangers
from runtime.rpc.strangers import _Sockets, parse_peer

LIMITS = StrangerLimits(
    seconds_max=10.0, bytes_max=1000, refusals_max=3, connections_max=5, connections_per_address_max=2
)
HERE = "127.0.0.1"


def one(port: int, received: int = 0, *, number: int = 0, address: str = HERE) -> Connection:
    return Connection((address, port), number or port, received)


def ports(strangers: Strangers, connections: list[Connection], now: float) -> dict[int, str]:
    return {cut.connection.peer[1]: cut.reason for cut in strangers.look(connections, now)}


def test_who_says_too_much_has_to_go() -> None:
    strangers = Strangers(LIMITS)
    assert ports(strangers, [one(1, 1000)], 0.0) == {}
    assert strangers.count == 1
    assert ports(strangers, [one(1, 1001)], 0.1) == {1: "1001 bytes"}
    assert strangers.count == 0


def test_who_was_cut_off_counts_no_more() -> None:
    strangers = Strangers(LIMITS)
    assert ports(strangers, [one(1), one(2, 2000), one(3, 2000)], 0.0).keys() == {2, 3}
    assert ports(strangers, [one(1), one(2, 2000), one(3, 2000), one(4)], 0.1) == {}
    assert strangers.count == 2


def test_who_stays_too_long_has_to_go() -> None:
    strangers = Strangers(LIMITS)
    assert ports(strangers, [one(1)], 0.0) == {}
    assert ports(strangers, [one(1), one(2)], 10.0) == {}
    assert ports(strangers, [one(1), one(2)], 10.1) == {1: "10 s"}


def test_who_calls_without_the_token_has_to_go() -> None:
    strangers = Strangers(LIMITS)
    strangers.refuse((HERE, 1), 3)
    assert ports(strangers, [one(1), one(2)], 0.0) == {}
    strangers.refuse((HERE, 1), 1)
    assert ports(strangers, [one(1), one(2)], 0.1) == {1: "more than 3 calls"}
    # The next connection on that port begins anew.
    assert ports(strangers, [one(2)], 0.2) == {}
    assert ports(strangers, [one(1, number=77), one(2)], 0.3) == {}


def test_the_oldest_of_too_many_have_to_go() -> None:
    strangers = Strangers(LIMITS)
    assert ports(strangers, [one(1)], 0.0) == {}
    assert ports(strangers, [one(1), one(2)], 0.1) == {}
    assert ports(strangers, [one(3), one(1), one(2)], 0.5) == {1: "2 others of its address"}
    others = [one(port, address=f"10.0.0.{port}") for port in range(11, 16)]
    assert ports(strangers, [one(2), one(3), *others], 1.0) == {2: "5 others", 3: "5 others"}
    assert strangers.count == 5


def test_who_has_just_come_is_not_one_of_too_many() -> None:
    """It may be one of ours, which shows the token within milliseconds."""
    strangers = Strangers(LIMITS)
    assert ports(strangers, [one(port) for port in range(1, 9)], 0.0) == {}
    assert ports(strangers, [one(port) for port in range(1, 9)], 0.49) == {}
    assert len(ports(strangers, [one(port) for port in range(1, 9)], 0.5)) == 8 - LIMITS.connections_per_address_max


def test_who_has_shown_the_token_may_stay_and_say_what_it_likes() -> None:
    strangers = Strangers(LIMITS)
    strangers.admit((HERE, 1))
    everybody = [one(port) for port in (1, 2, 3)]
    assert ports(strangers, everybody, 0.1) == {}
    assert strangers.count == 2
    assert strangers.is_known((HERE, 1), 1)
    strangers.refuse((HERE, 1), 100)
    assert ports(strangers, [one(1, 10**9)], 1000.0) == {}


def test_the_next_one_on_a_port_is_a_stranger_again() -> None:
    strangers = Strangers(LIMITS)
    strangers.admit((HERE, 1))
    assert ports(strangers, [one(1)], 0.1) == {}
    assert ports(strangers, [one(1, 5000, number=77)], 0.2) == {1: "5000 bytes"}
    strangers.admit((HERE, 1))
    assert ports(strangers, [one(1, 5000, number=78)], 0.4) == {}


def test_a_word_of_who_is_not_there_any_more_is_forgotten() -> None:
    strangers = Strangers(LIMITS)
    strangers.admit((HERE, 1))
    assert ports(strangers, [], 0.1) == {}
    assert ports(strangers, [one(1, 5000)], 0.2) == {1: "5000 bytes"}, "another one has its port"


@given(
    st.lists(
        st.tuples(st.sampled_from(["come", "go", "talk", "show", "look"]), st.integers(1, 8), st.floats(0.0, 4.0)),
        max_size=60,
    )
)
def test_no_stranger_outlives_its_bounds_and_no_friend_is_cut_off(steps: list[tuple[str, int, float]]) -> None:
    strangers, now, numbers = Strangers(LIMITS), 0.0, iter(range(100, 10_000))
    there: dict[int, Connection] = {}
    friends: set[int] = set()
    seen_since: dict[int, float] = {}
    for what, port, seconds in steps:
        now += seconds
        if what == "come" and port not in there:
            there[port] = one(port, number=next(numbers))
        elif what == "go":
            there.pop(port, None)
        elif what == "talk" and port in there:
            there[port] = one(port, there[port].received_bytes + 400, number=there[port].number)
        elif what == "show" and port in there:
            strangers.admit((HERE, port))
            friends.add(there[port].number)
        if what in {"show", "look"}:
            cut = ports(strangers, list(there.values()), now)
            assert not {there[port].number for port in cut} & friends
            for one_that_goes in cut:
                del there[one_that_goes]
            strange = [left for left in there.values() if left.number not in friends]
            seen_since = {left.number: seen_since.get(left.number, now) for left in strange}
            fresh = [left for left in strange if now - seen_since[left.number] < LIMITS.crowd_seconds]
            assert len(strange) <= LIMITS.connections_per_address_max + len(fresh)
            assert all(left.received_bytes <= LIMITS.bytes_max for left in strange)
            assert all(now - since <= LIMITS.seconds_max for since in seen_since.values())
            assert strangers.count == len(strange)


def test_peers_as_grpc_names_them() -> None:
    assert parse_peer("ipv4:127.0.0.1:5555") == ("127.0.0.1", 5555)
    assert parse_peer("ipv6:%5B::1%5D:5555") == ("::1", 5555)
    assert parse_peer("ipv6:[::ffff:10.0.0.1]:7") == ("10.0.0.1", 7)
    assert parse_peer("ipv6:%5Bfe80::1%25eth0%5D:7") == ("fe80::1", 7)
    assert parse_peer("unix:") is None


def test_a_descriptor_that_is_no_socket_by_now_costs_none() -> None:
    """Each look kept one more descriptor, until the process had none left."""
    sockets = _Sockets(Strangers(LIMITS))
    with socket.create_server((HERE, 0)) as server, socket.create_connection(server.getsockname()):
        sockets.port = server.getsockname()[1]
        accepted = server.accept()[0].detach()
        (found,) = sockets.connections()
        null = os.open(os.devnull, os.O_RDONLY)
        try:
            os.dup2(null, accepted)
            before = len(list(Path("/proc/self/fd").iterdir()))
            sockets.end(found)
            assert len(list(Path("/proc/self/fd").iterdir())) == before
        finally:
            os.close(accepted)
            os.close(null)

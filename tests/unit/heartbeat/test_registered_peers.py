"""Peers that register with a leader, on a local transport and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.scope import Scope
from runtime.common.errors import StaleTokenError, UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.ids import ClusterUuid, Incarnation
from runtime.common.version import PROTOCOL_VERSION, VERSION
from runtime.gateways.dispatcher import JobMasterRegistered, JobsNotTaken, RegisterJobMaster
from runtime.gateways.job_master import Heartbeat
from runtime.gateways.resource_manager import RegistrationRefused
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.registered_peers import RegisteredPeers
from runtime.heartbeat.service import HeartbeatService
from runtime.rpc.service import MessageStream, StreamHello, StreamKind
from runtime.rpc.settings import RpcLimits
from tests.kit.control_plane.rpc_wire import LocalWire
from tests.kit.control_plane.virtual_time import freeze, run_virtual

A, B, C = (Incarnation(letter * 32) for letter in "abc")
LEADER = Incarnation("f" * 32)
TOKEN = FencingToken(ClusterUuid("0" * 32), 7)
TIMING = HeartbeatTiming(interval=2.0, timeout=10.0)
KIND = StreamKind.JOB_MASTER_TO_DISPATCHER
WELCOME = JobMasterRegistered(TOKEN.cluster, TOKEN.revision, "blobs:1", TIMING.interval, TIMING.timeout)


def registration(peer: Incarnation, **changes: Any) -> RegisterJobMaster:
    return replace(RegisterJobMaster(peer, "host:1", VERSION, PROTOCOL_VERSION, 10), **changes)


class Leader:
    """Implements `PeerHandler`: writes down what it is told. `admission` decides, `on_lost` acts while it waits."""

    def __init__(self, *, peers_max: int | None = None) -> None:
        self.wire = LocalWire()
        self.streams = 0
        self.told: list[tuple[str, Incarnation]] = []
        self.messages: list[Any] = []
        self.silences: list[float] = []
        self.admission: Callable[[RegisterJobMaster], Awaitable[str]] = self.admit_all
        self.on_lost: Callable[[Incarnation], None] = lambda _: None
        self.clock = LoopClock()
        self.heartbeats = HeartbeatService(self.clock)
        self.peers = RegisteredPeers(
            "process",
            RegisterJobMaster,
            self,
            token=TOKEN,
            timing=TIMING,
            heartbeats=self.heartbeats,
            clock=self.clock,
            peers_max=peers_max,
        )

    async def admit_all(self, _registration: RegisterJobMaster) -> str:
        return ""

    async def admit(self, registration: RegisterJobMaster, _stream: MessageStream, /) -> str:
        return await self.admission(registration)

    def welcome(self, _registration: RegisterJobMaster, /) -> JobMasterRegistered:
        return WELCOME

    def registered(self, registration: RegisterJobMaster, /) -> None:
        self.told.append(("registered", registration.incarnation))

    def received(self, _peer: Incarnation, messages: Sequence[Any], /) -> None:
        assert not any(isinstance(one, RegisterJobMaster) for one in messages), "as assert_never does"
        self.messages += messages

    def disconnected(self, peer: Incarnation, /) -> None:
        self.told.append(("disconnected", peer))

    async def lost(self, peer: Incarnation, silence: float, /) -> None:
        self.told.append(("lost", peer))
        self.silences.append(silence)
        self.on_lost(peer)
        await asyncio.sleep(0)

    async def judge(self) -> None:
        while True:
            await self.peers.judge_silence()

    async def serve(self, play: Callable[[], Awaitable[None]]) -> None:
        """Serve while the test plays the peers."""
        limits = RpcLimits(outbox_messages_max=4)
        self.service = await self.wire.service(LEADER, limits=limits)
        self.service.server.add_stream_handler(KIND, self.peers.serve, check=self.peers.check)
        async with Scope("leader") as scope:
            scope.spawn_eternal("heartbeats", self.heartbeats.run())
            scope.spawn_eternal("silence", self.judge())
            await play()
            scope.cancel_all()
        await self.wire.close()

    async def dial(self, peer: Incarnation, target: FencingToken | None = None) -> MessageStream:
        self.streams += 1
        service = await self.wire.service(peer)
        hello = StreamHello(KIND, peer, service.server.address, self.streams, target, "")
        return await service.open_stream(self.service.server.address, hello, timeout=5)

    async def register(self, peer: Incarnation) -> MessageStream:
        stream = await self.dial(peer)
        stream.send(registration(peer))
        assert list(await stream.receive()) == [WELCOME]
        return stream


def play(leader: Leader, scenario: Callable[[], Awaitable[None]]) -> None:
    run_virtual(leader.serve(scenario))


async def wait_end(stream: MessageStream) -> None:
    """Take everything, until the stream ends."""
    with suppress(UnavailableError):
        while True:
            await stream.receive()


def test_a_peer_is_welcomed_heard_and_kept_alive() -> None:
    leader = Leader()

    async def main() -> None:
        stream = await leader.dial(A)
        stream.send(registration(A))
        stream.send(Heartbeat(1))
        assert list(await stream.receive()) == [WELCOME]
        assert leader.told == [("registered", A)]
        assert (leader.messages, leader.peers.connected) == ([Heartbeat(1)], (A,))
        assert leader.peers.is_connected(A)
        assert not leader.peers.is_silent(A)
        assert list(await stream.receive()) == [Heartbeat(1)]
        assert not leader.peers.is_heard(B)
        assert leader.peers.is_heard(A)
        await asyncio.sleep(2 * TIMING.interval)
        assert not leader.peers.is_heard(A), "its sign of life is late"
        stream.send(Heartbeat(2))
        await asyncio.sleep(0.1)
        assert leader.peers.is_heard(A)
        assert 0 <= leader.clock.epoch_millis() - leader.peers.last_heard_millis(A) <= 200

    play(leader, main)


def test_a_silent_peer_loses_its_stream_and_is_lost_when_it_does_not_come_back() -> None:
    leader = Leader()

    async def main() -> None:
        stream = await leader.register(A)
        heard = leader.clock.monotonic()
        await wait_end(stream)
        await asyncio.sleep(TIMING.interval + 0.1)
        assert leader.told == [("registered", A), ("disconnected", A), ("lost", A)]
        assert A not in leader.peers
        assert TIMING.timeout <= leader.silences[0] <= leader.clock.monotonic() - heard

    play(leader, main)


def test_a_peer_whose_stream_ends_has_the_whole_timeout_to_come_back() -> None:
    leader = Leader()

    async def main() -> None:
        stream = await leader.register(A)
        stream.abort("the network")
        await asyncio.sleep(TIMING.timeout - 1)
        assert leader.told == [("registered", A), ("disconnected", A)]
        assert leader.peers.is_silent(A)
        assert A in leader.peers
        assert leader.peers.last_heard_millis(A) > 0
        await leader.register(A)
        assert not leader.peers.is_silent(A)
        await asyncio.sleep(3)
        assert leader.told[2:] == [("registered", A)]

    play(leader, main)


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        pytest.param(registration(B), f"the stream belongs to process {A}, the registration names {B}", id="name"),
        pytest.param(
            registration(A, version="9", protocol_version=99), "this process is 9 (protocol 99)", id="version"
        ),
        pytest.param(registration(A, capacity=0), "too small", id="by the component"),
    ],
)
def test_a_refused_peer_hears_why(sent: RegisterJobMaster, refusal: str) -> None:
    leader = Leader()

    async def admission(registration: RegisterJobMaster) -> str:
        return "" if registration.capacity else "too small"

    leader.admission = admission

    async def main() -> None:
        stream = await leader.dial(A)
        stream.send(sent)
        (answer,) = await stream.receive()
        assert isinstance(answer, RegistrationRefused)
        assert refusal in answer.reason
        await wait_end(stream)
        assert (leader.told, leader.peers.connected) == ([], ())

    play(leader, main)


def test_the_number_of_peers_is_bounded_and_known_ones_come_back() -> None:
    leader = Leader(peers_max=2)

    async def main() -> None:
        (await leader.register(A)).abort("the network")
        await leader.register(B)
        stream = await leader.dial(C)
        stream.send(registration(C))
        assert list(await stream.receive()) == [
            RegistrationRefused("2 are registered already: no further process is admitted")
        ]
        await leader.register(A)
        leader.peers.forget(B, "it has ended")
        await leader.register(C)
        assert leader.peers.connected == (A, C)

    play(leader, main)


def test_a_peer_about_which_nothing_can_be_told_now_tries_again() -> None:
    leader = Leader()

    async def admission(_registration: RegisterJobMaster) -> str:
        message = "storage is away"
        raise UnavailableError(message)

    leader.admission = admission

    async def main() -> None:
        stream = await leader.dial(A)
        stream.send(registration(A))
        await wait_end(stream)
        assert (leader.told, A in leader.peers) == ([], False)

    play(leader, main)


@pytest.mark.parametrize("says", [Heartbeat(1), None])
def test_a_stream_without_a_registration_ends(says: object) -> None:
    leader = Leader()

    async def main() -> None:
        stream = await leader.dial(A)
        if says is not None:
            stream.send(says)
        began = leader.clock.monotonic()
        await wait_end(stream)
        assert (leader.clock.monotonic() - began >= TIMING.timeout) is (says is None)
        assert (leader.told, leader.peers.connected) == ([], ())

    play(leader, main)


def test_a_message_that_the_component_does_not_expect_ends_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader()

    async def main() -> None:
        stream = await leader.register(A)
        stream.send(registration(A))
        await wait_end(stream)
        assert leader.told == [("registered", A), ("disconnected", A)]
        assert leader.peers.is_silent(A)

    play(leader, main)
    assert "failed" in caplog.text


def slow_admission(may_go_on: asyncio.Event) -> Callable[[RegisterJobMaster], Awaitable[str]]:
    """What comes from `slow:1` waits."""

    async def admission(registration: RegisterJobMaster) -> str:
        if registration.address == "slow:1":
            await may_go_on.wait()
        return ""

    return admission


def test_a_stream_that_has_ended_takes_the_place_of_none_that_lives() -> None:  # R11
    leader, may_go_on = Leader(), asyncio.Event()
    leader.admission = slow_admission(may_go_on)

    async def main() -> None:
        slow = await leader.dial(A)
        slow.send(registration(A, address="slow:1"))
        await asyncio.sleep(0.1)
        living = await leader.register(A)
        may_go_on.set()
        await wait_end(slow)
        assert leader.told == [("registered", A)]
        leader.peers.send(A, JobsNotTaken("over the living stream"))
        assert list(await living.receive()) == [JobsNotTaken("over the living stream")]

    play(leader, main)


def test_a_stream_that_ended_while_it_waited_for_its_admission_takes_the_place_of_none_that_lives() -> None:  # R11
    leader, may_go_on = Leader(), asyncio.Event()
    leader.admission = slow_admission(may_go_on)

    async def main() -> None:
        slow = await leader.dial(A)
        slow.send(registration(A, address="slow:1"))
        await asyncio.sleep(0.1)
        slow.abort("the network")
        await asyncio.sleep(0.1)
        living = await leader.register(A)
        may_go_on.set()
        await asyncio.sleep(0.1)
        leader.peers.send(A, JobsNotTaken("over the living stream"))
        assert list(await living.receive()) == [JobsNotTaken("over the living stream")]

    play(leader, main)


def test_a_newer_stream_takes_the_place_of_the_older_one() -> None:  # R11
    leader = Leader()

    async def main() -> None:
        older = await leader.register(A)
        newer = await leader.register(A)
        await wait_end(older)
        assert leader.told == [("registered", A), ("disconnected", A), ("registered", A)]
        assert leader.peers.connected == (A,)
        leader.peers.send(A, JobsNotTaken("to the newer one"))
        assert list(await newer.receive()) == [JobsNotTaken("to the newer one")]

    play(leader, main)


def test_messages_to_a_peer_without_a_stream_are_dropped_and_one_that_reads_nothing_is_disconnected() -> None:
    leader = Leader()

    async def main() -> None:
        leader.peers.send(A, JobsNotTaken("to nobody"))
        stream = await leader.register(A)
        for _ in range(9):
            leader.peers.send(A, JobsNotTaken("too much at once"))
        await wait_end(stream)
        await asyncio.sleep(0.1)
        leader.peers.send(A, JobsNotTaken("its stream has ended"))
        assert leader.told == [("registered", A), ("disconnected", A)]

    play(leader, main)


def test_a_peer_that_is_forgotten_loses_its_stream_and_is_not_judged() -> None:
    leader = Leader()

    async def main() -> None:
        stream = await leader.register(A)
        leader.peers.expect(B)
        for peer in (A, B, C):
            leader.peers.forget(peer, "its lease has ended")
        await wait_end(stream)
        await asyncio.sleep(2 * TIMING.timeout)
        assert leader.told == [("registered", A)]
        assert (A in leader.peers, B in leader.peers, leader.peers.last_heard_millis(A)) == (False, False, 0)

    play(leader, main)


def test_a_peer_with_a_stream_is_not_expected() -> None:
    leader = Leader()

    async def main() -> None:
        await leader.register(A)  # meanwhile the lease of A could not be revoked: the caller expects it again
        leader.peers.expect(A)
        assert not leader.peers.is_silent(A)
        await asyncio.sleep(TIMING.timeout - 1)
        assert leader.told == [("registered", A)]

    play(leader, main)


def test_no_peer_is_judged_after_a_late_turn() -> None:  # R4
    leader = Leader()

    async def main() -> None:
        leader.peers.expect(A)
        await asyncio.sleep(TIMING.timeout - 1)
        freeze(60)
        await asyncio.sleep(TIMING.timeout - 1)
        assert leader.told == []
        await asyncio.sleep(TIMING.interval + 1)
        assert leader.told == [("lost", A)]

    play(leader, main)


@pytest.mark.parametrize("is_back", [False, True])
def test_a_peer_that_speaks_while_another_one_is_given_up_is_not_lost(*, is_back: bool) -> None:
    leader = Leader()
    leader.on_lost = lambda _peer: leader.peers.expect(B) if is_back else None

    async def main() -> None:
        leader.peers.expect(A)
        leader.peers.expect(B)
        await asyncio.sleep(TIMING.timeout + TIMING.interval)
        assert leader.told == [("lost", A), *([] if is_back else [("lost", B)])]
        assert leader.peers.is_silent(B) is is_back

    play(leader, main)


def test_a_stream_that_is_meant_for_another_term_is_not_accepted() -> None:  # R1
    leader = Leader()

    async def main() -> None:
        with pytest.raises(StaleTokenError, match="meant for leader term 6"):
            await leader.dial(A, target=replace(TOKEN, revision=6))
        await leader.dial(A, target=TOKEN)

    play(leader, main)

"""What proves to a stand-by that its predecessor is dead, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.aio.scope import Scope
from runtime.common.errors import UnavailableError
from runtime.common.ids import Incarnation
from runtime.entrypoint.predecessor import Predecessor
from runtime.heartbeat.proof_of_death import ProcessDialler
from runtime.highavailability.records import LeaderRecord
from runtime.rpc.local import LocalNetwork, LocalRpcService
from runtime.rpc.settings import RpcSettings
from tests.kit.control_plane.virtual_time import run_virtual

FIRST, SECOND, THIRD = (Incarnation(digit * 32) for digit in "123")
PORT = 6123
RECORD = LeaderRecord(FIRST, f"127.0.0.1:{PORT}", "127.0.0.1:8081")


class Hosts:
    """JobManager processes. An address that `is_silent` answers nothing, as with a frozen process."""

    def __init__(self) -> None:
        self.network = LocalNetwork()
        self.is_silent = False
        self.dials = 0

    @asynccontextmanager
    async def process(
        self, incarnation: Incarnation, port: int = 0, *, trusts_refusal: bool = True
    ) -> AsyncIterator[Predecessor]:
        rpc = LocalRpcService(self.network, RpcSettings(incarnation, None, port=port), LoopClock())
        await rpc.start()

        async def identify(address: str, *, timeout: float) -> Incarnation:
            self.dials += 1
            if self.is_silent:
                raise UnavailableError
            return await rpc.identify(address, timeout=timeout)

        dialler = ProcessDialler(identify, trusts_refusal, 2.0)
        made = Predecessor(incarnation, rpc, dialler.prove_death, SeededEntropy(1), timeout=2.0)
        made.listen()
        yield made
        await rpc.stop(grace=0)


async def is_proven(second: Predecessor, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            return bool(await second.proof_of_death(RECORD))
    except TimeoutError:
        return False


def case(main: Callable[[Hosts], Awaitable[None]]) -> None:
    async def run() -> None:
        await main(Hosts())

    run_virtual(run())


def test_a_killed_process_is_known_at_once() -> None:
    async def main(hosts: Hosts) -> None:
        async with hosts.process(FIRST, PORT), hosts.process(SECOND) as second, Scope("test") as scope:
            waiting = scope.start("wait", second.proof_of_death(RECORD))
            await asyncio.sleep(600)
            assert not waiting.done()
            assert hosts.dials == 0, "its stream says that it lives"
            assert second.is_held.value
            await hosts.network.kill(RECORD.address)
            async with asyncio.timeout(0.5):
                assert "listens" in await waiting
            assert not second.is_held.value

    case(main)


def test_one_that_was_dead_before_is_known_too() -> None:
    async def main(hosts: Hosts) -> None:
        async with hosts.process(SECOND) as second:
            assert await is_proven(second, within=0.5)

    case(main)


@pytest.mark.parametrize("trusts_refusal", [True, False])
def test_another_process_at_its_address_is_a_proof(trusts_refusal: bool) -> None:
    async def main(hosts: Hosts) -> None:
        async with hosts.process(THIRD, PORT), hosts.process(SECOND, trusts_refusal=trusts_refusal) as second:
            assert await is_proven(second, within=0.5)

    case(main)


def test_the_next_process_may_listen_at_its_address_itself() -> None:
    """One that was started again on the same port finds itself there."""

    async def main(hosts: Hosts) -> None:
        async with hosts.process(SECOND, PORT) as second:
            assert await is_proven(second, within=0.5)

    case(main)


def test_silence_is_no_proof() -> None:
    async def main(hosts: Hosts) -> None:
        hosts.is_silent = True
        async with hosts.process(SECOND) as second:
            assert not await is_proven(second, within=60)
        assert 10 < hosts.dials < 300, "it is asked again, and not without a pause"

    case(main)


def test_where_firewalls_refuse_a_refusal_is_no_proof() -> None:
    async def main(hosts: Hosts) -> None:
        async with hosts.process(SECOND, trusts_refusal=False) as second:
            assert not await is_proven(second, within=60)

    case(main)


def test_who_cannot_open_a_stream_tries_again_and_holds_on() -> None:
    async def main(hosts: Hosts) -> None:
        hosts.is_silent = True
        async with hosts.process(SECOND) as second, Scope("test") as scope:
            waiting = scope.start("wait", second.proof_of_death(RECORD))
            await asyncio.sleep(5)
            async with hosts.process(FIRST, PORT):
                await asyncio.sleep(5)
                dials = hosts.dials
                await asyncio.sleep(60)
                assert hosts.dials == dials, "a stream is open"
            hosts.is_silent = False
            async with asyncio.timeout(100):
                await waiting

    case(main)


def test_a_process_that_takes_no_streams_is_not_dead() -> None:
    async def main(hosts: Hosts) -> None:
        rpc = LocalRpcService(hosts.network, RpcSettings(FIRST, None, port=PORT), LoopClock())
        await rpc.start()
        async with hosts.process(SECOND) as second:
            assert not await is_proven(second, within=30)
        await rpc.stop(grace=0)

    case(main)

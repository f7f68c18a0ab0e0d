"""DelegationTokenManager over providers that misbehave (R51)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope
from runtime.common.errors import UnavailableError
from runtime.gateways.delegation_tokens import DelegationToken, ObtainedTokens
from runtime.security.core.token_renewal import RenewalSettings
from runtime.security.delegation_tokens import DelegationTokenManager, ProviderCalls

pytestmark = pytest.mark.asyncio

SECRET = "hush-hush"


class Provider:
    """What a test makes of it."""

    def __init__(self, obtain: Callable[[int], ObtainedTokens]) -> None:
        self._obtain = obtain
        self.calls = 0
        self.told: object = None

    def obtain(self) -> ObtainedTokens:
        self.calls += 1
        return self._obtain(self.calls)

    def state(self) -> object:
        return self.told


def lasting(seconds: float) -> Callable[[int], ObtainedTokens]:
    return lambda call: ObtainedTokens({"n": str(call)}, SystemClock().epoch_millis() + int(seconds * 1000))


def failing(_: int) -> ObtainedTokens:
    message = "the service \x1b[31mis away"
    raise UnavailableError(message)


class HTTPError(Exception):
    """A library's, which says what was asked."""


def telling(_: int) -> ObtainedTokens:
    message = f"401 for url: https://vault.example.com/login?token={SECRET}"
    raise HTTPError(message)


def ended(_: int) -> ObtainedTokens:
    return ObtainedTokens({"token": SECRET}, 1)


class Distributed(list[DelegationToken]):
    """What TaskManagers are sent, and how to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def __call__(self, tokens: Sequence[DelegationToken]) -> None:
        self.extend(tokens)
        self._news.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(100):
            while len(self) < count:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def managed(
    **providers: Provider,
) -> AsyncIterator[tuple[DelegationTokenManager, Distributed]]:
    calls = [ProviderCalls(name, provider) for name, provider in providers.items()]
    manager = DelegationTokenManager(calls, RenewalSettings(0.01, 0.05), SystemClock())
    distributed = Distributed()
    async with Scope("test") as scope:
        scope.spawn_eternal("manager", manager.run(distributed))
        yield manager, distributed
        scope.cancel_all()


async def reached(look: Callable[[], object]) -> None:
    async with asyncio.timeout(100):
        while not look():
            await asyncio.sleep(0.01)


async def test_tokens_are_renewed_and_distributed_while_they_are_good() -> None:
    provider = Provider(lasting(60))
    async with managed(vault=provider) as (manager, distributed):
        await distributed.until(3)
        await manager.wait_asked(100)
        assert [token.content for token in distributed[:3]] == [b'{"n":"1"}', b'{"n":"2"}', b'{"n":"3"}']
        assert manager.current() == (distributed[-1],)
        (status,) = manager.statuses()
        assert (status.valid_until_millis, status.failures, status.failure) == (
            distributed[-1].valid_until_millis, 0, "",
        )  # fmt: skip


async def test_who_fails_or_hangs_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    def hanging(_: int) -> ObtainedTokens:
        assert gate.wait(100)
        return ObtainedTokens({"n": "late"})

    try:
        async with managed(
            fails=Provider(failing),
            tells=Provider(telling),
            hangs=Provider(hanging),
            ends=Provider(ended),
            good=Provider(lasting(60)),
        ) as (
            manager,
            distributed,
        ):
            await distributed.until(1)
            await reached(lambda: {one.provider: one.failures for one in manager.statuses()}["fails"] >= 2)
            await reached(lambda: {one.provider: one.failures for one in manager.statuses()}["ends"] >= 2)
            await manager.wait_asked(0.01)
            assert "before the delegation tokens of hangs are there" in caplog.text
            assert {token.provider for token in manager.current()} == {"good"}
            gate.set()
            await manager.wait_asked(100)
            await reached(lambda: "hangs" in {token.provider for token in manager.current()})
            failures = {one.provider: one.failure for one in manager.statuses()}
            assert failures["fails"] == r"the service \x1b[31mis away"
            assert failures["tells"] == "HTTPError", "what it says is shown to everybody who looks at the overview"
            assert failures["ends"] == "its tokens have expired already"
    finally:
        gate.set()
    assert SECRET not in caplog.text
    assert "late" not in caplog.text


async def test_what_changes_by_itself_is_obtained_at_once() -> None:
    provider = Provider(lambda call: ObtainedTokens({"n": str(call)}))
    provider.told = "first"
    async with managed(file=provider) as (_, distributed):
        await distributed.until(1)
        provider.told = "second"
        await distributed.until(2)
        assert provider.calls == 2


async def test_without_providers_nobody_waits() -> None:
    async with managed() as (manager, _):
        await manager.wait_asked(0.0)
        assert (manager.current(), list(manager.statuses())) == ((), [])


async def refused_often(manager: DelegationTokenManager) -> None:
    await reached(lambda: manager.statuses()[0].failures > 2)
    assert "has not come back yet" in manager.statuses()[0].failure


async def test_a_call_of_the_term_before_is_not_repeated_beside_it() -> None:
    gate, at_once, most = threading.Event(), 0, 0
    lock = threading.Lock()

    def slow(_: int) -> ObtainedTokens:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        assert gate.wait(100)
        with lock:
            at_once -= 1
        return ObtainedTokens({"n": "1"})

    calls = [ProviderCalls("slow", Provider(slow))]
    for term in range(2):
        manager = DelegationTokenManager(calls, RenewalSettings(0.5, 0.01), SystemClock())
        distributed = Distributed()
        async with Scope("term") as scope:
            scope.spawn_eternal("manager", manager.run(distributed))
            await reached(lambda: at_once == 1)
            if term:
                await refused_often(manager)
                gate.set()
                await distributed.until(1)
            scope.cancel_all()
    assert most == 1

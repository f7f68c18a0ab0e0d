"""Leaders obtain delegation tokens, and all TaskManagers have the newest (R51)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.gateways.delegation_tokens import DelegationToken, NewDelegationTokens, ObtainedTokens
from runtime.gateways.resource_manager import JobsEnded, SlotReport
from runtime.security.delegation_tokens import ProviderCalls
from tests.kit.control_plane.plane import ControlPlane, eventually
from tests.kit.control_plane.task_executor_cluster import registered, task_executor_cluster

pytestmark = pytest.mark.asyncio


class Provider:
    """Gives the next number whenever the test says that there is another."""

    def __init__(self) -> None:
        self.calls = 0
        self.news = 1

    def obtain(self) -> ObtainedTokens:
        self.calls += 1
        return ObtainedTokens({"n": str(self.calls)})

    def state(self) -> object:
        return self.news


def token(number: int) -> DelegationToken:
    return DelegationToken("vault", f'{{"n":"{number}"}}'.encode(), 0)


@pytest.mark.parametrize("is_split", [False, True])
async def test_who_registers_is_told_all_and_everybody_what_is_new(is_split: bool) -> None:
    plane, provider = ControlPlane(is_split=is_split), Provider()
    plane.token_providers = [ProviderCalls("vault", provider)]
    plane.heartbeat_timeout = 1000.0
    try:
        first = await plane.lead()
        early = await plane.start_task_manager(1)
        await eventually(lambda: early.tokens == [token(1)], "the first tokens are there")
        late = await plane.start_task_manager(1)
        assert late.registered_with == (token(1),)
        (status,) = first.resource_manager.delegation_tokens()
        assert (status.provider, status.failures, status.failure) == ("vault", 0, "")
        provider.news = 2
        await eventually(lambda: early.tokens == late.tokens == [token(1), token(2)], "all are told of new ones")

        await plane.depose(first)
        await plane.lead()
        await eventually(lambda: provider.calls == 3, "the next leader obtains anew")
        later = await plane.start_task_manager(1)
        await eventually(lambda: later.tokens == [token(3)], "its own are told")
    finally:
        await plane.stop()


async def test_a_task_manager_takes_them_before_it_offers_slots_and_leaves_the_rest_to_others(tmp_path: Path) -> None:
    taken: list[DelegationToken] = []
    at_first_report: list[DelegationToken] = []

    async with task_executor_cluster(
        tmp_path,
        take_tokens=taken.extend,
        prepare=lambda leader, _: setattr(
            leader, "answer_registration", lambda _: replace(registered(), tokens=(token(1),))
        ),
    ) as cluster:
        await cluster.leader.wait_for(SlotReport)
        at_first_report += taken
        cluster.leader.send(NewDelegationTokens((token(2),)), JobsEnded(()), NewDelegationTokens((token(3),)))
        await eventually(lambda: taken == [token(1), token(2), token(3)], "all are taken")
        assert at_first_report == [token(1)]

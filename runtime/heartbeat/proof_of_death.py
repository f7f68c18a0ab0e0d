"""Dials the guards of TaskManagers: is one there, and is its TaskManager surely dead (R13)? JobMaster processes too.

Whoever wants to act on a death proves it here by itself. A guard's address must have answered once (`is_guard_of`,
which the leader asks at registration): one that never did refuses for other reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from runtime.common.errors import FlinklikeError
from runtime.common.ids import Incarnation
from runtime.heartbeat.core.death import (
    GRACE,
    PROCESS_GRACE,
    Answered,
    ConnectionRefused,
    Dialled,
    GuardIdentity,
    NoAnswer,
    Verdict,
    judge,
    judge_process,
)
from runtime.rpc.service import NobodyListensError

_ANSWER_BYTES_MAX = 256


async def dial(address: str, timeout: float) -> Dialled:
    """Ask the guard at host:port who it is. Never raises for what the network does."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, int(port), limit=_ANSWER_BYTES_MAX)
            try:
                answer = await reader.read(_ANSWER_BYTES_MAX)
            finally:
                writer.close()
    except ConnectionRefusedError:
        return ConnectionRefused()
    except TimeoutError:
        return NoAnswer(f"no answer in {timeout:g} s")
    except (OSError, ValueError) as error:  # an address that is none proves nothing either
        return NoAnswer(str(error))
    # A guard that dies between accepting and answering says nothing: that is no proof, the next dial is.
    return Answered(answer.decode(errors="replace")) if answer else NoAnswer("the connection was closed")


@dataclass(frozen=True, slots=True)
class GuardDialler:
    """`trusts_refusal` is `cluster.trust-connection-refused`; `timeout` that of one dial, in seconds."""

    trusts_refusal: bool
    timeout: float
    dial: Callable[[str, float], Awaitable[Dialled]] = dial

    async def is_guard_of(self, address: str, incarnation: Incarnation, boot_id: str) -> bool:
        """True when that TaskManager's guard answers at the address: from then on a refusal there is a proof."""
        return await self._verdict(address, incarnation, boot_id) is Verdict.ALIVE

    async def prove_death(self, address: str, incarnation: Incarnation, boot_id: str) -> bool:
        """True when everything of that TaskManager is reaped. False when it lives, or nobody can tell.

        Returns True after the grace only.
        """
        if await self._verdict(address, incarnation, boot_id) is not Verdict.DEAD:
            return False
        await asyncio.sleep(GRACE)
        return True

    async def _verdict(self, address: str, incarnation: Incarnation, boot_id: str) -> Verdict:
        dialled = await self.dial(address, self.timeout)
        return judge(dialled, GuardIdentity(incarnation, boot_id), trusts_refusal=self.trusts_refusal)


class Identify(Protocol):
    """`RpcService.identify`."""

    async def __call__(self, address: str, *, timeout: float) -> Incarnation: ...


@dataclass(frozen=True, slots=True)
class ProcessDialler:
    """JobMaster processes. Without a guard this proves nothing about what they have started: their jobs' epochs do."""

    identify: Identify
    trusts_refusal: bool
    timeout: float

    async def prove_death(self, address: str, incarnation: Incarnation) -> bool:
        """True when that process is gone, found twice with a grace in between. False when nobody can tell."""
        if await self._verdict(address, incarnation) is not Verdict.DEAD:
            return False
        await asyncio.sleep(PROCESS_GRACE)
        return await self._verdict(address, incarnation) is Verdict.DEAD

    async def _verdict(self, address: str, incarnation: Incarnation) -> Verdict:
        return judge_process(await self._dial(address), incarnation, trusts_refusal=self.trusts_refusal)

    async def _dial(self, address: str) -> Dialled:
        try:
            return Answered(await self.identify(address, timeout=self.timeout))
        except NobodyListensError:
            return ConnectionRefused()
        except FlinklikeError as error:
            return NoAnswer(str(error))

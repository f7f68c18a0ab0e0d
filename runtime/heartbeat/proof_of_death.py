"""Dials the guards of TaskManagers: is one there, and is its TaskManager surely dead (R13)? JobMaster processes too.

Whoever wants to act on a death proves it here by itself, by the word of who has reaped everything (R30). A guard's
address is dialled once at registration (`is_guard_of`): where it does not lead to the guard, deaths are found by
timeouts only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from runtime.common.errors import FlinklikeError
from runtime.common.ids import Incarnation
from runtime.heartbeat.core.death import (
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
    """`timeout` is that of one dial, in seconds."""

    timeout: float
    dial: Callable[[str, float], Awaitable[Dialled]] = dial

    async def is_guard_of(self, address: str, incarnation: Incarnation, boot_id: str) -> bool:
        """True when that TaskManager's guard answers at the address: it will state its end there."""
        return await self._verdict(address, incarnation, boot_id) is Verdict.ALIVE

    async def prove_death(self, address: str, incarnation: Incarnation, boot_id: str) -> bool:
        """True when everything of that TaskManager is reaped. False when it lives, or nobody can tell."""
        return await self._verdict(address, incarnation, boot_id) is Verdict.DEAD

    async def _verdict(self, address: str, incarnation: Incarnation, boot_id: str) -> Verdict:
        return judge(await self.dial(address, self.timeout), GuardIdentity(incarnation, boot_id))


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

"""Proves that a TaskManager, or a JobMaster process, is dead, by dialling it (R13).

A component that acts on the death of a TaskManager proves it here first: the guard, which has reaped everything, says
so (R30). The address of a guard is dialled once at registration (`is_guard_of`): where the dial does not reach the
guard, deaths are found by timeouts only.
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
    """Ask the guard at host:port for its identity, for at most `timeout` seconds. Network failures raise nothing."""
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
    # A guard that dies between accepting and answering says nothing: that proves nothing, the next dial does.
    return Answered(answer.decode(errors="replace")) if answer else NoAnswer("the connection was closed")


@dataclass(frozen=True, slots=True)
class GuardDialler:
    """Dials guards of TaskManagers. `timeout` bounds one dial, in seconds."""

    timeout: float
    dial: Callable[[str, float], Awaitable[Dialled]] = dial

    async def is_guard_of(self, address: str, incarnation: Incarnation, boot_id: str) -> bool:
        """True if the guard of that TaskManager answers at the address, and so will prove its death there."""
        return await self._verdict(address, incarnation, boot_id) is Verdict.ALIVE

    async def prove_death(self, address: str, incarnation: Incarnation, boot_id: str) -> bool:
        """True if every process of that TaskManager is reaped. False if it lives, or if nothing is proved."""
        return await self._verdict(address, incarnation, boot_id) is Verdict.DEAD

    async def _verdict(self, address: str, incarnation: Incarnation, boot_id: str) -> Verdict:
        return judge(await self.dial(address, self.timeout), GuardIdentity(incarnation, boot_id))


class Identify(Protocol):
    """`RpcService.identify`."""

    async def __call__(self, address: str, *, timeout: float) -> Incarnation: ...


@dataclass(frozen=True, slots=True)
class ProcessDialler:
    """Dials JobMaster processes. `trusts_refusal`: a refused connection proves a death. `timeout`: seconds per dial.

    Such a proof is about the process only; what it has started is stopped by the epochs of its jobs.
    """

    identify: Identify
    trusts_refusal: bool
    timeout: float

    async def prove_death(self, address: str, incarnation: Incarnation) -> bool:
        """True if two dials, a grace apart, find that process dead. False if it lives, or if nothing is proved."""
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

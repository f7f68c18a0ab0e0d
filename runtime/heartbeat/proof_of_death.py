"""Dials the guards of TaskManagers: is one there, and is its TaskManager surely dead (R13)?

Whoever wants to act on a death proves it here by itself. The address must have answered once (`is_guard_of`, which the
leader asks at registration): one that never did refuses for other reasons.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from runtime.common.ids import Incarnation
from runtime.heartbeat.core.death import (
    GRACE,
    Answered,
    ConnectionRefused,
    Dialled,
    GuardIdentity,
    NoAnswer,
    Verdict,
    judge,
)

_ANSWER_BYTES_MAX = 256


async def dial(address: str, *, timeout: float) -> Dialled:
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
    except OSError as error:
        return NoAnswer(str(error))
    # A guard that dies between accepting and answering says nothing: that is no proof, the next dial is.
    return Answered(answer.decode(errors="replace")) if answer else NoAnswer("the connection was closed")


@dataclass(frozen=True, slots=True)
class GuardDialler:
    """`trusts_refusal` is `cluster.trust-connection-refused`; `timeout` that of one dial, in seconds."""

    trusts_refusal: bool
    timeout: float

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
        dialled = await dial(address, timeout=self.timeout)
        return judge(dialled, GuardIdentity(incarnation, boot_id), trusts_refusal=self.trusts_refusal)

"""Predecessor: proves that the process of the candidate before this one is dead, so that a stand-by need not wait for
its lease.

While the predecessor lives, a stream to it is open. When the stream ends, or none can be opened, its address is
dialled. A frozen or unreachable process proves nothing. Should a proof be wrong (a firewall answers, names mean other
hosts elsewhere), the fencing of terms still protects (protocol.md 4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from runtime.aio.retry import RetryPolicy
from runtime.aio.watch import Watch
from runtime.common.entropy import Entropy
from runtime.common.errors import PermanentError, RetryableError, UnavailableError
from runtime.common.ids import Incarnation
from runtime.highavailability.records import LeaderRecord
from runtime.rpc.service import MessageStream, RpcService, StreamHello, StreamKind

logger = logging.getLogger(__name__)

ProveDeath = Callable[[str, Incarnation], Awaitable[bool]]
"""`ProcessDialler.prove_death`."""

_KIND = StreamKind.JOB_MANAGER_TO_JOB_MANAGER
_RETRY = RetryPolicy(delay_initial=0.05, delay_max=1.0)


class Predecessor:
    """Both ends of such streams: `listen` accepts those of later candidates, `proof_of_death` opens one."""

    def __init__(
        self, incarnation: Incarnation, rpc: RpcService, prove_death: ProveDeath, entropy: Entropy, *, timeout: float
    ) -> None:
        self._incarnation = incarnation
        self._rpc = rpc
        self._prove_death = prove_death
        self._entropy = entropy
        self._timeout = timeout
        self._streams = 0
        self.is_held: Watch[bool] = Watch(False)  # noqa: FBT003 - the first value
        """True while a stream proves that the predecessor lives."""

    def listen(self) -> None:
        """Accept the streams of later candidates."""
        self._rpc.server.add_stream_handler(_KIND, _hold, check=lambda _target, _sender: None)

    async def proof_of_death(self, record: LeaderRecord) -> str:
        """The proof in words, once that process is dead (`ProofOfDeath`)."""
        attempt = 0
        while True:
            try:
                stream = await self._open(record)
            except (RetryableError, PermanentError) as error:
                logger.debug("no stream to the JobManager at %s: %s", record.address, error)
            else:
                attempt = 0
                await self._hold_until_ended(stream)
            if await self._prove_death(record.address, record.incarnation):
                return "no process, or another one, listens at its address"
            await asyncio.sleep(_RETRY.delay(attempt, self._entropy))
            attempt += 1

    async def _open(self, record: LeaderRecord) -> MessageStream:
        self._streams += 1
        hello = StreamHello(
            kind=_KIND,
            dialer=self._incarnation,
            dialer_address=self._rpc.server.address,
            number=self._streams,
            target=None,
            target_incarnation=record.incarnation,
        )
        return await self._rpc.open_stream(record.address, hello, timeout=self._timeout)

    async def _hold_until_ended(self, stream: MessageStream) -> None:
        self.is_held.set(True)
        try:
            await _hold(stream)
        except UnavailableError as error:
            logger.info("the stream to the JobManager before this one has ended: %s", error)
        finally:
            self.is_held.set(False)
            stream.abort("over")


async def _hold(stream: MessageStream) -> None:
    """Hold the stream open until one of the two processes ends. It carries no messages."""
    while True:
        _ = await stream.receive()

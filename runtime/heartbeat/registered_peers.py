"""Peers that register with a leader, each over a stream of its own: JobMaster processes and TaskManagers.

A peer dials, introduces itself with its registration, and is admitted or refused. Heartbeats keep an admitted stream
alive until it ends; then the peer is silent, and lost when it stays silent for the whole timeout. Invariants: the table
holds one stream per peer, the one that was admitted last; a stream that has ended takes the place of none that lives
(R11); after a late turn of the event loop every silent peer has the whole timeout again (R4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from runtime.common.clock import Clock
from runtime.common.errors import BackpressureError, StaleTokenError, UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation
from runtime.common.version import PROTOCOL_VERSION, VERSION, speaks
from runtime.gateways.resource_manager import RegistrationRefused
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.service import HeartbeatService
from runtime.rpc.service import MessageStream
from runtime.rpc.stream import receive_introduction

logger = logging.getLogger(__name__)


class Registration(Protocol):
    """The first message of a peer, as far as all kinds of peers have it."""

    @property
    def incarnation(self) -> Incarnation:
        """The process."""

    @property
    def address(self) -> str:
        """Where the process listens."""

    @property
    def version(self) -> str:
        """Its release."""

    @property
    def protocol_version(self) -> int:
        """The protocol that it speaks."""


RegistrationT = TypeVar("RegistrationT", bound=Registration)
RegistrationT_contra = TypeVar("RegistrationT_contra", bound=Registration, contravariant=True)
MessageT_contra = TypeVar("MessageT_contra", contravariant=True)


class PeerHandler(Protocol[RegistrationT_contra, MessageT_contra]):
    """The component that peers register with. Only `admit` and `lost` may wait."""

    async def admit(self, registration: RegistrationT_contra, stream: MessageStream, /) -> str:
        """Why the peer is refused for good, "" if it is admitted.

        Raises UnavailableError when that cannot be told now: the stream ends, and the peer tries again.
        """

    def welcome(self, registration: RegistrationT_contra, /) -> object:
        """The message that tells the peer that it is admitted."""

    def registered(self, registration: RegistrationT_contra, /) -> None:
        """The stream of this peer is in the table."""

    def received(self, peer: Incarnation, messages: Sequence[MessageT_contra], /) -> None:
        """What the peer has sent since the last call. An exception ends the stream."""

    def disconnected(self, peer: Incarnation, /) -> None:
        """The stream of the peer has ended, and it has no other one."""

    async def lost(self, peer: Incarnation, silence: float, /) -> None:
        """The peer was silent for `silence` seconds, and is no longer expected."""


class RegisteredPeers(Generic[RegistrationT]):
    """The peers of one kind, of one leader term. `noun` names one peer in logs, `peers_max` bounds their number.

    `serve` is the handler of their streams, and `check` its token check.
    """

    def __init__(
        self,
        noun: str,
        registration_type: type[RegistrationT],
        handler: PeerHandler[RegistrationT, Any],
        *,
        token: FencingToken,
        timing: HeartbeatTiming,
        heartbeats: HeartbeatService,
        clock: Clock,
        peers_max: int | None = None,
    ) -> None:
        self._noun = noun
        self._registration_type = registration_type
        self._handler = handler
        self._token = token
        self._timing = timing
        self._heartbeats = heartbeats
        self._clock = clock
        self._peers_max = peers_max
        self._streams: dict[Incarnation, MessageStream] = {}
        self._silent_since: dict[Incarnation, float] = {}

    def check(self, target: FencingToken | None, _sender: FencingToken | None) -> None:
        """R1: a stream names this term, or none, at a first registration. Raises StaleTokenError."""
        if target is not None and target != self._token:
            message = f"meant for leader term {target.revision} of {target.cluster}, this is {self._token.revision}"
            raise StaleTokenError(message)

    # --- the table ----------------------------------------------------------------------------------------

    def __contains__(self, peer: Incarnation) -> bool:
        return peer in self._streams or peer in self._silent_since

    @property
    def connected(self) -> Sequence[Incarnation]:
        """The peers with a stream."""
        return tuple(self._streams)

    def is_connected(self, peer: Incarnation) -> bool:
        """True if the peer has a stream."""
        return peer in self._streams

    def is_silent(self, peer: Incarnation) -> bool:
        """True if the peer has no stream, is expected to open one, and is not lost yet."""
        return peer in self._silent_since

    def is_heard(self, peer: Incarnation) -> bool:
        """True if the peer has a stream, and its last sign of life is not late."""
        stream = self._streams.get(peer)
        return stream is not None and self._clock.monotonic() - stream.last_heard < 2 * self._timing.interval

    def last_heard_millis(self, peer: Incarnation) -> int:
        """When the peer was last heard of, since 1970; 0 if it never was."""
        stream = self._streams.get(peer)
        heard = self._silent_since.get(peer) if stream is None else stream.last_heard
        silence = None if heard is None else self._clock.monotonic() - heard
        return 0 if silence is None else self._clock.epoch_millis() - int(silence * 1000)

    def expect(self, peer: Incarnation) -> None:
        """The silence of the peer begins now. Nothing happens if the peer has a stream: it speaks."""
        if peer not in self._streams:
            self._silent_since[peer] = self._clock.monotonic()

    def forget(self, peer: Incarnation, reason: str) -> None:
        """The peer does not come back: end its stream, if it has one. Idempotent; `disconnected` is not called."""
        self._silent_since.pop(peer, None)
        stream = self._streams.pop(peer, None)
        if stream is not None:
            stream.abort(reason)

    def send(self, peer: Incarnation, message: object) -> None:
        """Queue a message. A peer without a stream gets nothing: its next stream begins with all that it has.

        A peer that takes no messages loses its stream. Raises MessageTooLargeError.
        """
        stream = self._streams.get(peer)
        if stream is None:
            return
        try:
            stream.send(message)
        except UnavailableError:
            logger.debug("the stream to %s %s has ended", self._noun, peer)
        except BackpressureError as error:
            stream.abort(f"too much waits to be sent: {error}")

    # --- streams ------------------------------------------------------------------------------------------

    async def serve(self, stream: MessageStream) -> None:
        """Serve the stream of one peer, from its registration to its end."""
        messages = await receive_introduction(stream, within=self._timing.timeout)
        registration = messages.pop(0)
        if not isinstance(registration, self._registration_type):
            stream.abort(f"the first message was not {self._registration_type.__name__}")
            return
        peer = registration.incarnation
        if self.is_silent(peer) and stream.hello.dialer == peer:
            self.expect(peer)  # R8: it speaks, also when it is refused
        refusal = (
            self._mismatch(registration, stream.hello.dialer)
            or await self._handler.admit(registration, stream)
            or self._excess(peer)
        )
        if refusal:
            logger.warning("%s %s at %s refused: %s", self._noun, peer, registration.address, refusal)
            stream.send(RegistrationRefused(refusal))
            return
        # R11: a stream that has ended cannot be sent to, and so takes the place of none that lives.
        stream.send(self._handler.welcome(registration))
        self._streams[peer] = stream
        self._silent_since.pop(peer, None)
        self._handler.registered(registration)
        try:
            with self._heartbeats.keep_alive(stream, self._timing):
                while True:
                    self._handler.received(peer, messages)
                    messages = list(await stream.receive())
        finally:
            if self._streams.get(peer) is stream:
                del self._streams[peer]
                self._silent_since[peer] = stream.last_heard
                self._handler.disconnected(peer)

    def _mismatch(self, registration: RegistrationT, dialer: Incarnation) -> str:
        if registration.incarnation != dialer:
            return f"the stream belongs to process {dialer}, the registration names {registration.incarnation}"
        if not speaks(registration.protocol_version):
            return (
                f"the JobManager is version {VERSION} (protocol {PROTOCOL_VERSION}), this {self._noun} is"
                f" {registration.version} (protocol {registration.protocol_version}): install the same version"
            )
        return ""

    def _excess(self, peer: Incarnation) -> str:
        count = len(self._streams) + len(self._silent_since)
        if self._peers_max is None or peer in self or count < self._peers_max:
            return ""
        return f"{self._peers_max} are registered already: no further {self._noun} is admitted"

    # --- silence ------------------------------------------------------------------------------------------

    async def judge_silence(self) -> None:
        """Sleep for one heartbeat interval, then tell the handler of each peer that is lost.

        R4: when the sleep took more than two intervals, no peer is judged, and every silence begins anew.
        """
        before = self._clock.monotonic()
        await asyncio.sleep(self._timing.interval)
        now = self._clock.monotonic()
        if now - before > 2 * self._timing.interval:
            self._silent_since = dict.fromkeys(self._silent_since, now)
        for peer, since in list(self._silent_since.items()):
            # `lost` may wait: the peer may have registered meanwhile, or have been forgotten.
            if now - since >= self._timing.timeout and self._silent_since.get(peer) == since:
                del self._silent_since[peer]
                await self._handler.lost(peer, now - since)

"""Decides for all peers of a process when to send a heartbeat, and when to give a peer up.

R4: an observer that itself ran late, by more than a heartbeat interval, or whose lease lapsed, re-arms the timeouts of
all its peers before it judges any of them: what they sent meanwhile waits unread in its sockets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HeartbeatTiming:
    """Seconds. `is_unconditional`: send every interval, also when other messages were sent."""

    interval: float
    timeout: float
    is_unconditional: bool = False

    def __post_init__(self) -> None:
        assert 0 < self.interval < self.timeout, self


class Observation(Protocol):
    """The times of one peer, as its stream knows them."""

    @property
    def last_heard(self) -> float:
        """When anything last came from it."""

    @property
    def last_sent(self) -> float:
        """When anything was last sent to it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The observer runs at `now`; it had meant to run at `scheduled_at` at the latest."""

    scheduled_at: float
    now: float
    observations: Mapping[int, Observation]


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Give this peer a sign of life. `sequence` counts those of this peer from 1."""

    peer: int
    sequence: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """This peer has been silent for `silence` seconds, more than its timeout."""

    peer: int
    silence: float


Effect = SendHeartbeat | GiveUp


@dataclass(slots=True)
class _Peer:
    timing: HeartbeatTiming
    armed_at: float
    heartbeat_at: float
    sequence: int = 0


class HeartbeatMonitor:
    """The peers of one process. A peer that was given up is forgotten."""

    def __init__(self) -> None:
        self._peers: dict[int, _Peer] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def add(self, peer: int, timing: HeartbeatTiming, now: float) -> None:
        """Watch a peer: its timeout starts now."""
        assert peer not in self._peers, peer
        self._peers[peer] = _Peer(timing, now, now)

    def remove(self, peer: int) -> None:
        """Stop watching a peer. Idempotent."""
        self._peers.pop(peer, None)

    def rearm(self, now: float) -> None:
        """All timeouts start again (R4)."""
        for peer in self._peers.values():
            peer.armed_at = now

    def handle(self, tick: Tick) -> list[Effect]:
        """The heartbeats and ends that are due."""
        lateness = tick.now - tick.scheduled_at
        if lateness > 0 and any(lateness > peer.timing.interval for peer in self._peers.values()):
            self.rearm(tick.now)
        effects: list[Effect] = []
        for key, observation in tick.observations.items():
            peer = self._peers.get(key)
            if peer is None:
                continue
            silence = tick.now - max(observation.last_heard, peer.armed_at)
            if silence >= peer.timing.timeout:
                del self._peers[key]
                effects.append(GiveUp(key, silence))
            elif tick.now >= self._heartbeat_due(peer, observation):
                peer.sequence += 1
                peer.heartbeat_at = tick.now
                effects.append(SendHeartbeat(key, peer.sequence))
        return effects

    def next_at(self, observations: Mapping[int, Observation]) -> float:
        """When something is due if nothing happens before; infinity without peers."""
        due = math.inf
        for key, observation in observations.items():
            peer = self._peers.get(key)
            if peer is not None:
                given_up_at = max(observation.last_heard, peer.armed_at) + peer.timing.timeout
                due = min(due, self._heartbeat_due(peer, observation), given_up_at)
        return due

    @staticmethod
    def _heartbeat_due(peer: _Peer, observation: Observation) -> float:
        since = peer.heartbeat_at
        if not peer.timing.is_unconditional:
            since = max(since, observation.last_sent)
        return since + peer.timing.interval

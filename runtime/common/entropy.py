"""Randomness as a parameter: ids and jitter come from here, so that a seed can replay them."""

from __future__ import annotations

from typing import Protocol


class Entropy(Protocol):
    """Source of ids and numbers. Implementations: `runtime.aio.entropy` (system, seeded)."""

    def hex_id(self) -> str:
        """32 lower-case hex digits, never the same twice."""

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high)."""

    def child(self, name: str) -> Entropy:
        """An independent source: numbers drawn from it do not shift those of any other source."""

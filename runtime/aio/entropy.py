"""The two sources of randomness: the system's, for production, and seeded ones, for replays."""

from __future__ import annotations

import hashlib
import random
import secrets


class SystemEntropy:
    """Ids and numbers from the operating system. Children are as independent as the source itself."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def hex_id(self) -> str:
        """32 lower-case hex digits."""
        return secrets.token_hex(16)

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return self._random.uniform(low, high)

    def child(self, name: str) -> SystemEntropy:
        """Another handle on the same source."""
        return self


class SeededEntropy:
    """Everything follows from the seed; a child's numbers follow from the seed and its path of names only."""

    __slots__ = ("_path", "_random")

    def __init__(self, seed: int | str) -> None:
        self._path = str(seed)
        digest = hashlib.sha256(self._path.encode()).digest()
        self._random = random.Random(digest)  # noqa: S311 - replays need a generator that can be seeded

    def hex_id(self) -> str:
        """32 lower-case hex digits."""
        return f"{self._random.getrandbits(128):032x}"

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + (high - low) * self._random.random()

    def child(self, name: str) -> SeededEntropy:
        """An independent source: its draws do not shift the numbers of other sources."""
        return SeededEntropy(f"{self._path}/{name}")

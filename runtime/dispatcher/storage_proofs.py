"""R20, the leader's half: a JobMaster process proves that it sees the storage of the leader before it gets jobs.

The leader puts a nonce into storage for each process that registers in the store; the process answers there. Storage
that is away proves nothing, and neither does one missing answer: storage that is slow looks like storage that is not
shared. A process proves its storage once a term.
"""

from __future__ import annotations

import logging
from typing import Protocol

from runtime.common.entropy import Entropy
from runtime.common.errors import PermanentError, RetryableError, UnavailableError
from runtime.common.ids import Incarnation

logger = logging.getLogger(__name__)

STORAGE_PROOF_TRIES = 3
"""A process that has not answered in storage at so many registrations sees another one."""


class StorageChallenges(Protocol):
    """`runtime.blob.storage_probe.StorageProbe`."""

    async def challenge(self, incarnation: Incarnation, term: int, nonce: str, /) -> None:
        """Put a nonce into storage for a process. Idempotent."""

    async def check(self, incarnation: Incarnation, term: int, nonce: str, /) -> None:
        """Read the answer of the process. Raises PermanentError when it is not there, or is another one."""


class StorageProofs:
    """The challenges of one leader term."""

    def __init__(self, storage: StorageChallenges, term: int, entropy: Entropy) -> None:
        self._storage = storage
        self._term = term
        self._entropy = entropy
        self._nonces: dict[Incarnation, str] = {}
        self._challenged: set[Incarnation] = set()
        self._proven: set[Incarnation] = set()
        self._failures: dict[Incarnation, int] = {}

    def has_proved(self, incarnation: Incarnation) -> bool:
        """True if the process has shown in this term that it sees the leader's storage."""
        return incarnation in self._proven

    async def challenge(self, incarnation: Incarnation) -> None:
        """Challenge a process, as soon as the leader knows of it. Storage that is away is asked again later."""
        # Chosen before it is written: a write that fails may have been done, and another one may be under way.
        if incarnation not in self._nonces:
            self._nonces[incarnation] = self._entropy.hex_id()
        try:
            await self._storage.challenge(incarnation, self._term, self._nonces[incarnation])
            self._challenged.add(incarnation)
        except RetryableError as error:
            logger.warning("JobMaster process %s is not challenged yet: %s", incarnation, error)

    async def problem(self, incarnation: Incarnation) -> str:
        """Why the process may not register, "" if it may. Raises UnavailableError when that cannot be told now."""
        if incarnation in self._proven:
            return ""
        if incarnation not in self._challenged:
            await self.challenge(incarnation)
            message = f"JobMaster process {incarnation} has not answered a challenge in storage yet"
            raise UnavailableError(message)
        try:
            await self._storage.check(incarnation, self._term, self._nonces[incarnation])
        except PermanentError as error:
            failures = self._failures[incarnation] = self._failures.get(incarnation, 0) + 1
            if failures >= STORAGE_PROOF_TRIES:
                return str(error)
            raise UnavailableError(str(error)) from error
        self._proven.add(incarnation)
        return ""

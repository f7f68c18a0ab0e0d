"""StorageProbe (R20): proves that a process and the leader see the same storage.

The leader writes a nonce under the process's name. The process reads it and writes an answer that needs the nonce; the
leader reads the answer. So unshared storage is found at start, not at the first failover. The files belong to one term:
a leader that was frozen and has lost its term does not touch those of its successor.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress

from runtime.aio.blocking import BlockingIo
from runtime.blob.directory import StorageDirectory
from runtime.common.entropy import Entropy
from runtime.common.errors import NotFoundError, PermanentError, RetryableError
from runtime.common.ids import Incarnation

_FOLDER = "probe"
_NONCE_BYTES_MAX = 256


class StorageNotSharedError(PermanentError):
    """This process and the leader do not see the same storage directory."""


class StorageProbe:
    """Both sides of the probe, on one storage directory."""

    def __init__(self, directory: StorageDirectory, io: BlockingIo, entropy: Entropy) -> None:
        self._directory = directory
        self._io = io
        self._entropy = entropy

    async def challenge(self, incarnation: Incarnation, term: int, nonce: str) -> None:
        """Leader: write a nonce for a process. Idempotent: it may be repeated when its outcome is unknown."""
        await self._io.run(self._write, _challenge_file(incarnation, term), nonce)

    async def answer(self, incarnation: Incarnation, term: int) -> None:
        """Process: read the leader's nonce and answer it. Raises StorageNotSharedError."""
        try:
            nonce = await self._io.run(self._read, _challenge_file(incarnation, term))
        except NotFoundError as error:
            message = (
                f"{self._directory.url} is not the leader's storage: what the leader has written is not there; "
                "high-availability.storageDir must be shared by all hosts"
            )
            raise StorageNotSharedError(message) from error
        await self._io.run(self._write, _answer_file(incarnation, term), _answer(incarnation, nonce))

    async def check(self, incarnation: Incarnation, term: int, nonce: str) -> None:
        """Leader: read the answer, and remove both when it is right. Raises StorageNotSharedError."""
        try:
            answer = await self._io.run(self._read, _answer_file(incarnation, term))
        except NotFoundError:
            answer = ""
        if answer != _answer(incarnation, nonce):
            message = (
                f"process {incarnation} writes into another storage than {self._directory.url}; "
                "high-availability.storageDir must be shared by all hosts"
            )
            raise StorageNotSharedError(message)
        for name in (_challenge_file(incarnation, term), _answer_file(incarnation, term)):
            # The answer was right. A file that stays does no harm.
            with suppress(RetryableError):
                await self._io.run(self._directory.delete, f"{_FOLDER}/{name}")

    def _write(self, name: str, text: str) -> None:
        staged = self._directory.stage(f"{name}.{self._entropy.hex_id()}")
        try:
            staged.write(text.encode())
            staged.publish(f"{_FOLDER}/{name}")
        except BaseException:
            staged.discard()
            raise

    def _read(self, name: str) -> str:
        with self._directory.open(f"{_FOLDER}/{name}") as file:
            return file.read(_NONCE_BYTES_MAX).decode(errors="replace")


def _challenge_file(incarnation: Incarnation, term: int) -> str:
    return f"{incarnation}.{term}.challenge"


def _answer_file(incarnation: Incarnation, term: int) -> str:
    return f"{incarnation}.{term}.answer"


def _answer(incarnation: Incarnation, nonce: str) -> str:
    return hashlib.sha256(f"{incarnation} has read {nonce}".encode()).hexdigest()

"""R20: is the storage that we see the storage that the leader sees?

The leader challenges: it writes a nonce and tells its name. The process reads it and writes an answer that only
who has read the nonce can write; the leader reads that back. Unshared storage is found at start, not at the first loss.
"""

from __future__ import annotations

import hashlib

from runtime.blob.blocking import BlockingIo
from runtime.blob.directory import StorageDirectory
from runtime.common.entropy import Entropy
from runtime.common.errors import NotFoundError, PermanentError
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

    async def challenge(self, incarnation: Incarnation) -> str:
        """Leader: write a nonce for a process; the nonce, to be checked later."""
        nonce = self._entropy.hex_id()
        await self._io.run(self._write, f"{incarnation}.challenge", nonce)
        return nonce

    async def answer(self, incarnation: Incarnation) -> None:
        """Process: read the leader's nonce and answer it. Raises StorageNotSharedError."""
        try:
            nonce = await self._io.run(self._read, f"{incarnation}.challenge")
        except NotFoundError as error:
            message = (
                f"{self._directory.url} is not the leader's storage: what the leader has written is not there; "
                "high-availability.storageDir must be shared by all hosts"
            )
            raise StorageNotSharedError(message) from error
        await self._io.run(self._write, f"{incarnation}.answer", _answer(incarnation, nonce))

    async def check(self, incarnation: Incarnation, nonce: str) -> None:
        """Leader: read the answer and remove both. Raises StorageNotSharedError."""
        try:
            answer = await self._io.run(self._read, f"{incarnation}.answer")
        except NotFoundError:
            answer = ""
        for name in (f"{incarnation}.challenge", f"{incarnation}.answer"):
            await self._io.run(self._directory.delete, f"{_FOLDER}/{name}")
        if answer != _answer(incarnation, nonce):
            message = (
                f"process {incarnation} writes into another storage than {self._directory.url}; "
                "high-availability.storageDir must be shared by all hosts"
            )
            raise StorageNotSharedError(message)

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


def _answer(incarnation: Incarnation, nonce: str) -> str:
    return hashlib.sha256(f"{incarnation} has read {nonce}".encode()).hexdigest()

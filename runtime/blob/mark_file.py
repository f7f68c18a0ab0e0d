"""MarkFile: one small file of a cluster in the storage, replaced as a whole, for the mark of its store (R35)."""

from __future__ import annotations

from runtime.aio.blocking import BlockingIo
from runtime.blob.directory import StorageDirectory
from runtime.common.entropy import Entropy
from runtime.common.errors import NotFoundError

_BYTES_MAX = 64 * 1024


class MarkFile:
    """`store-marks/<cluster id>`."""

    def __init__(self, directory: StorageDirectory, cluster_id: str, io: BlockingIo, entropy: Entropy) -> None:
        self._directory = directory
        self._name = f"store-marks/{cluster_id}"
        self._io = io
        self._entropy = entropy

    async def read(self) -> bytes | None:
        """The content, None when there is no file. Raises UnavailableError."""
        return await self._io.run(self._read)

    async def write(self, data: bytes) -> None:
        """Durable when it returns. Raises UnavailableError, StorageExhaustedError."""
        await self._io.run(self._write, data)

    def _read(self) -> bytes | None:
        try:
            with self._directory.open(self._name) as file:
                return file.read(_BYTES_MAX)
        except NotFoundError:
            return None

    def _write(self, data: bytes) -> None:
        staged = self._directory.stage(f"mark.{self._entropy.hex_id()}")
        try:
            staged.write(data)
            staged.publish(self._name)
        except BaseException:
            staged.discard()
            raise

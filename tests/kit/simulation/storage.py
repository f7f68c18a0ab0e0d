"""The shared storage of a simulated cluster: a file system in memory, behind fsspec, that can fail.

It fails where a real one does, inside of an operation, so that what the product makes of its errors is tested too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from runtime.common.ids import JobId
from tests.kit.simulation.history import BlobDeleted, Damaged, History, OutputChanged
from tests.kit.simulation.processes import CURRENT, SimulatedLoop

PROTOCOL = "simulated"
URL = f"{PROTOCOL}://storage"
OUTPUTS = f"{PROTOCOL}://outputs"
"""Jobs write below `<OUTPUTS>/<job id>`. There is no rename: a file is copied and deleted."""

Mishap = Callable[[], int]
"""The errno of the next operation, 0 when it goes well."""


def all_is_well() -> int:
    """Healthy storage."""
    return 0


class SimulatedFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """One at a time: `attach` begins a new one."""

    protocol = (PROTOCOL,)
    store: dict[str, Any] = {}  # noqa: RUF012 - as in its base, all instances share one
    pseudo_dirs = [""]  # noqa: RUF012 - the same
    mishap: Mishap = staticmethod(all_is_well)
    takes_nothing = 0
    """The errno of every write while the storage is full or read-only, else 0."""
    lost: set[str] = set()  # noqa: RUF012 - as above
    deleted: Callable[[str], None] = staticmethod(lambda _name: None)
    damaged: Callable[[str], None] = staticmethod(lambda _name: None)
    changed: Callable[[str, str, int | None, bool], None] = staticmethod(lambda *_: None)

    @classmethod
    def attach(cls, loop: SimulatedLoop, history: History) -> None:
        """Empty storage for a world."""

        def deleted(name: str) -> None:
            process = CURRENT.get()
            history.add(loop.time(), "-" if process is None else process.name, BlobDeleted(name))

        cls.store = {}
        cls.pseudo_dirs = [""]
        cls.lost = set()
        cls.heal()

        def changed(job_id: str, name: str, size: int | None, by_task: bool) -> None:
            process = CURRENT.get()
            who = "-" if process is None else process.name
            history.add(loop.time(), who, OutputChanged(JobId(job_id), name, size, by_task))

        cls.changed = staticmethod(changed)
        cls.deleted = staticmethod(deleted)
        cls.damaged = staticmethod(lambda name: history.add(loop.time(), "storage", Damaged(name)))

    @classmethod
    def heal(cls) -> None:
        """From now on it works. What is lost stays lost."""
        cls.mishap = staticmethod(all_is_well)
        cls.takes_nothing = 0

    @classmethod
    def lose(cls, draw: Callable[[float, float], float]) -> None:
        """One of the objects is gone, if there are any."""
        objects = sorted(path for path in cls.store if "/blobs/" in path)
        if objects:
            path = objects[int(draw(0, len(objects)))]
            del cls.store[path]
            name = path.rpartition("/")[2]
            cls.lost.add(name)
            cls.damaged(name)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix(f"{PROTOCOL}://")))

    def _operate(self, path: str) -> None:
        number = type(self).mishap()
        if number:
            raise OSError(number, os.strerror(number), path)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        self._operate(path)
        file = super()._open(path, mode, **options)
        if mode != "rb":
            file.write = partial(self._write, file, file.write)
        return file

    def _write(self, file: Any, write: Callable[[bytes], int], data: bytes) -> int:
        """What does not fit any more is there in part."""
        if not type(self).takes_nothing:
            return write(data)
        write(data[: len(data) // 2])
        raise OSError(type(self).takes_nothing, os.strerror(type(self).takes_nothing), file.path)

    @classmethod
    def task_writes(cls, path: str, data: bytes) -> None:
        """By user code, which has storage of its own: it does not fail."""
        name = cls._strip_protocol(path)
        cls.store[name] = MemoryFile(None, name, data)
        cls._tell(name, by_task=True)

    @classmethod
    def _tell(cls, name: str, *, by_task: bool = False) -> None:
        _, _, below = name.partition("/outputs/")
        if name.startswith("/outputs/"):
            job_id, _, inner = below.partition("/")
            cls.changed(job_id, inner, cls.store[name].size if name in cls.store else None, by_task)

    def _keep(self, name: str, data: bytes) -> None:
        """As one object. What does not fit any more is there in part."""
        number = type(self).takes_nothing
        self.store[name] = MemoryFile(self, name, data[: len(data) // 2] if number else data)
        self._tell(name)
        if number:
            raise OSError(number, os.strerror(number), name)

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        """Write at once; it may have succeeded although it fails."""
        self._operate(path)
        self._keep(self._strip_protocol(path), value)
        self._operate(path)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy; it may have succeeded although it fails."""
        self._operate(path1)
        source = self._strip_protocol(path1)
        if source not in self.store:
            raise FileNotFoundError(path1)
        self._keep(self._strip_protocol(path2), self.store[source].getvalue())
        self._operate(path2)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Read."""
        self._operate(path)
        return bytes(super().cat_file(path, start, end, **options))

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        """List."""
        self._operate(path)
        return super().ls(path, detail, **options)

    def rm_file(self, path: str) -> None:
        """Delete; what was published is told."""
        self._operate(path)
        super().rm_file(path)
        self._tell(self._strip_protocol(path))
        if "/tmp/" not in path and "/outputs/" not in path:
            type(self).deleted(path.rpartition("/")[2])

    @classmethod
    def has(cls, name: str) -> bool:
        """Is there a file of that name, in any folder?"""
        return any(path.endswith(f"/{name}") for path in cls.store)


def failing(draw: Callable[[float, float], float], probability: float) -> Mishap:
    """Now and then an operation fails: the disk is broken, or full."""

    def mishap() -> int:
        if draw(0, 1) >= probability:
            return 0
        return errno.EIO if draw(0, 1) < 0.5 else errno.ENOSPC

    return mishap


fsspec.register_implementation(PROTOCOL, SimulatedFileSystem, clobber=True)

"""Jars that jobs bring along, for the class path of their Spark. They lie by content, since jobs share environments.

Layout: `<root>/<sha256>/<file name>`. Invariant: a jar stays as long as a job of this TaskManager has it, or a Spark
environment that was started with it lives: a JVM reads its jars as long as it lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from runtime.aio.scope import ServiceScope
from runtime.common.deletion import delete_tree
from runtime.common.ids import JobId
from runtime.gateways.task import BlobReference
from runtime.taskexecutor.directories.placing import place, plain_name
from runtime.taskexecutor.directories.shared_work import SharedWork

logger = logging.getLogger(__name__)

OpenLocally = Callable[[BlobReference], AbstractAsyncContextManager[Path | bytes]]
"""A local source of a file, for as long as the block lasts."""


class JarFiles:
    """The jars of one TaskManager."""

    def __init__(self, root: Path, open_locally: OpenLocally, scope: ServiceScope) -> None:
        self._root = root
        self._open = open_locally
        self._placing: SharedWork[Path, None] = SharedWork("jar", scope)
        self._jobs: dict[str, set[JobId]] = {}
        self._renamed = 0

    async def prepare(self, job_id: JobId, jars: Collection[BlobReference]) -> tuple[Path, ...]:
        """The paths of a job's jars, complete, in their order. Raises what the blob store raises, InvalidInputError."""
        paths: list[Path] = []
        for jar in jars:
            self._jobs.setdefault(jar.sha256, set()).add(job_id)
            path = self._root / plain_name(jar.sha256) / plain_name(jar.name)
            if not path.exists():
                await self._placing.run(path, partial(self._place, jar, path))
            paths.append(path)
        return tuple(paths)

    async def _place(self, jar: BlobReference, path: Path) -> None:
        async with self._open(jar) as source:
            await asyncio.to_thread(place, source, path)

    async def delete(self, job_id: JobId, in_use: Collection[str]) -> None:
        """The job has left. Deletes jars that no job has; those whose sha256 is `in_use` stay for a later departure.

        A jar that is to go has another name at once, so that no job that comes meanwhile finds it.
        """
        own = {sha256 for sha256, jobs in self._jobs.items() if job_id in jobs}
        await self._placing.settle(lambda path: path.parent.name in own)
        for jobs in self._jobs.values():
            jobs.discard(job_id)
        gone = [sha256 for sha256, jobs in self._jobs.items() if not jobs and sha256 not in in_use]
        for sha256 in gone:
            del self._jobs[sha256]
        for doomed in [moved for sha256 in gone if (moved := self._rename(sha256)) is not None]:
            failures = await asyncio.to_thread(delete_tree, doomed)
            if failures:
                logger.warning("a jar of ended jobs stays behind: %s", failures[0])

    def _rename(self, sha256: str) -> Path | None:
        self._renamed += 1
        doomed = self._root / f".{sha256}.{self._renamed}"
        try:
            (self._root / sha256).rename(doomed)
        except FileNotFoundError:
            return None
        return doomed

"""Deletes the directories of streaming queries whose jobs have ended and keep none (R59).

Each TaskManager looks: all of them reach a shared directory, and each its own one where it is not shared. The job's
result, which is durable, says what to do, so nothing has to be told to anybody, and a TaskManager that was away finds
it too. Names that the job store does not know stay: they may be another cluster's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from runtime.common.errors import FlinklikeError, InvalidInputError
from runtime.common.ids import JobId, is_hex_id
from runtime.taskexecutor.storage.directory_tree import DirectoryTree, tree_of

logger = logging.getLogger(__name__)

DeletesCheckpoints = Callable[[JobId], Awaitable[bool | None]]
"""True if the job has ended and keeps no directory, False if it keeps them or is unknown; None while it may run."""


class EndedCheckpoints:
    """Reconciler over `execution.checkpointing.dir`."""

    def __init__(self, url: str, deletes: DeletesCheckpoints) -> None:
        self._url = url
        self._deletes = deletes
        self._kept: set[str] = set()
        self._is_out_of_reach = False

    async def activate(self) -> int:
        """Look at all directories, and delete those that are not kept. How many were deleted. Raises FlinklikeError."""
        if self._is_out_of_reach:
            return 0
        try:
            tree, base = await asyncio.to_thread(tree_of, self._url)
        except InvalidInputError as error:
            self._is_out_of_reach = True
            logger.warning("directories of ended streaming jobs stay, nothing here deletes them: %s", error)
            return 0
        names = await asyncio.to_thread(tree.names, base)
        self._kept.intersection_update(names)
        deleted = 0
        for name in names:
            if is_hex_id(name) and name not in self._kept:
                deleted += await self._judge(tree, base, name)
        return deleted

    async def _judge(self, tree: DirectoryTree, base: str, name: str) -> bool:
        deletes = await self._deletes(JobId(name))
        if deletes is False:
            self._kept.add(name)
        if not deletes:
            return False
        try:
            await asyncio.to_thread(tree.delete, f"{base}/{name}")
        except (OSError, FlinklikeError) as error:
            logger.warning("%s/%s of a job that has ended cannot be deleted, it is tried again: %s", base, name, error)
            return False
        logger.info("deleted %s/%s: its job has ended and keeps no checkpoints", base, name)
        return True

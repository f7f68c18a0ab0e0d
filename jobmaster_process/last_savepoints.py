"""Savepoints of the streaming jobs of a process that ends and whose jobs no other one takes (R61)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from runtime.aio.scope import Scope
from runtime.common.entropy import Entropy
from runtime.common.errors import FlinklikeError
from runtime.common.ids import JobId
from runtime.gateways.operations import OperationKind, OperationState, StreamOperation, TriggerOperation

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1


class StoppableJob(Protocol):
    """A job that runs here: `JobManagerRunner`."""

    @property
    def job_id(self) -> JobId:
        """Of the job."""

    async def trigger_operation(self, wanted: TriggerOperation, /) -> StreamOperation:
        """Returns what is durable of the operation. Raises ConflictError, UnavailableError."""


async def stop_with_savepoints(jobs: Iterable[StoppableJob], target: str, timeout: float, entropy: Entropy) -> None:
    """Stop these streaming jobs, each with a savepoint below `target`. Returns after `timeout` seconds at the latest.

    The record of the stop, which outlives the job, has the savepoint's directory, and so has the log. What is not
    stopped then, and why, is in the log.
    """
    async with Scope("last savepoints") as scope:
        for job in jobs:
            wanted = TriggerOperation(job.job_id, entropy.hex_id(), OperationKind.STOP, target)
            scope.spawn(f"last savepoint of {job.job_id}", _stop(job, wanted, timeout))


async def _stop(job: StoppableJob, wanted: TriggerOperation, timeout: float) -> None:
    seen: StreamOperation | None = None
    why = f"it was not made within {timeout:g} s"
    try:
        async with asyncio.timeout(timeout):
            seen = await job.trigger_operation(wanted)
            while seen.state is OperationState.IN_PROGRESS:
                await asyncio.sleep(_LOOK_SECONDS)
                seen = await job.trigger_operation(wanted)
            why = seen.cause
    except FlinklikeError as error:  # the job has ended: by this stop, or by itself
        why = str(error)
    except TimeoutError:
        pass
    directory = "" if seen is None else seen.directory
    if seen is not None and seen.state is OperationState.COMPLETED:
        logger.info("job %s is stopped, its savepoint is %s", job.job_id, directory)
    else:
        shown = f" (it would be {directory}: flinklike checkpoints {job.job_id} tells)" if directory else ""
        logger.warning("job %s has no savepoint as far as is known here%s: %s", job.job_id, shown, why)

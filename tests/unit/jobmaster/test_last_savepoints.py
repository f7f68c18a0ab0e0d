"""A JobMaster process that ends, and whose jobs no other one takes, stops streaming jobs with savepoints."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from jobmaster_process.last_savepoints import stop_with_savepoints
from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import ConflictError
from runtime.common.ids import JobId
from runtime.gateways.operations import OperationKind, OperationState, StreamOperation, TriggerOperation


class Job:
    """A streaming job whose stop ends as it is told, after so many looks."""

    def __init__(self, number: int, state: OperationState, looks: int = 2, cause: str = "") -> None:
        self.job_id = JobId(f"{number:032x}")
        self.asked: list[TriggerOperation] = []
        self._end, self._looks, self._cause = state, looks, cause

    async def trigger_operation(self, wanted: TriggerOperation, /) -> StreamOperation:
        self.asked.append(wanted)
        state = OperationState.IN_PROGRESS if len(self.asked) <= self._looks else self._end
        known = StreamOperation(wanted.trigger_id, wanted.kind, state, 1, 1000, f"{wanted.target}/savepoint-1")
        return replace(known, cause=self._cause) if state is OperationState.FAILED else known


class EndedJob(Job):
    """One that has ended."""

    async def trigger_operation(self, wanted: TriggerOperation, /) -> StreamOperation:
        message = f"job {self.job_id} is FINISHED"
        raise ConflictError(message)


@pytest.mark.asyncio
async def test_each_is_stopped_and_the_log_says_where_its_state_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    whole, failed = Job(1, OperationState.COMPLETED), Job(2, OperationState.FAILED, cause="no space")
    late = Job(3, OperationState.COMPLETED, looks=1 << 30)
    ended = EndedJob(4, OperationState.COMPLETED)
    await stop_with_savepoints([whole, failed, late, ended], "/s", 0.5, SeededEntropy(1))
    assert {(one.kind, one.target, one.trigger_id == whole.asked[0].trigger_id) for one in whole.asked} == {
        (OperationKind.STOP, "/s", True)
    }
    told = {record.getMessage() for record in caplog.records if record.name.endswith("last_savepoints")}
    place = "(it would be /s/savepoint-1: flinklike checkpoints {} tells)"
    never = f"job {late.job_id} has no savepoint as far as is known here {place.format(late.job_id)}"
    assert told == {
        f"job {whole.job_id} is stopped, its savepoint is /s/savepoint-1",
        f"job {failed.job_id} has no savepoint as far as is known here {place.format(failed.job_id)}: no space",
        f"{never}: it was not made within 0.5 s",
        f"job {ended.job_id} has no savepoint as far as is known here: job {ended.job_id} is FINISHED",
    }

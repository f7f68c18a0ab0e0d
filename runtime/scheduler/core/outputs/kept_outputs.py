"""Which outputs are kept of a job that cannot be read, or whose commit cannot be carried out (R26, R28). Pure.

Invariant: outputs are deleted only if the outcome was surely not decided: events that cannot be read count as decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runtime.common.ids import JobId
from runtime.gateways.kept_outputs import how_to_commit
from runtime.gateways.task import OutputDirectory
from runtime.scheduler.core.job_events import AttemptFinished, JobEvent, OutputsCommitting, SubtasksReset


@dataclass(frozen=True, slots=True)
class Kept:
    """`text`: what the failure of the job says of its outputs, "" if none are kept. `is_decided`: the events say that
    the outcome was decided, so that a cancel came too late.
    """

    text: str = ""
    is_decided: bool = False


def what_is_kept(job_id: JobId, batches: Iterable[Sequence[JobEvent]] | None) -> Kept:
    """The outputs to keep. `batches`: the events of the job, None if they cannot be read."""
    if batches is None:
        every = f".attempt-{job_id}_*"
        return Kept(
            "whether its outcome was decided cannot be read, so what its finished tasks wrote is kept: hidden"
            f" directories {every} below the bases of its outputs, to be deleted by hand, or, if all that are"
            f" there are to count, committed with bin/commit-outputs.sh MODE=BASE/{every}"
        )
    outputs = _decided(batches)
    return Kept(f"its outcome was decided, and {how_to_commit(outputs)}", is_decided=True) if outputs else Kept()


def _decided(batches: Iterable[Sequence[JobEvent]]) -> list[OutputDirectory]:
    accepted: dict[tuple[str, int], AttemptFinished] = {}
    is_decided = False
    for event in (event for batch in batches for event in batch):
        match event:
            case AttemptFinished(attempt_id):
                accepted[attempt_id.vertex_id, attempt_id.subtask_index] = event
            case SubtasksReset(vertex_id, subtasks):
                for index in subtasks:
                    accepted.pop((vertex_id, index), None)
            case OutputsCommitting():
                is_decided = True
            case _:
                pass
    return [output for event in accepted.values() for output in event.outputs] if is_decided else []

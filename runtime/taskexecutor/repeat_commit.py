"""`bin/commit-outputs.sh BASE/.commit-JOB_ID`: repeat a commit whose job has FAILED, from what it has left in storage.

Where no commit had begun, `MODE=BASE/.attempt-ID ...` says what is to be committed, with runs of subtasks where there
are many (`_{0-6,8}_`); `MODE=BASE/.attempt-JOB_ID_*`, where nobody can read what was accepted, means all that there
are, and is refused where a subtask has left more than one. The job is over, so nobody else moves (R27); every step is
the same as a TaskManager's, and may be repeated (R28).
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from runtime.aio.clock import LoopClock
from runtime.common.errors import FlinklikeError, InvalidInputError
from runtime.common.ids import ExecutionAttemptId, JobId, VertexId
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.kept_outputs import named_directories
from runtime.gateways.task import OUTPUT_MODES, OutputDirectory
from runtime.taskexecutor.commit_records import commit_names, read_claim
from runtime.taskexecutor.output_files import output_files
from runtime.taskexecutor.output_move import PARALLEL_MAX, OutputMove, Permit
from runtime.taskexecutor.output_names import HIDDEN_ATTEMPT, HIDDEN_COMMIT

PATIENCE = 60.0
"""Seconds without a success, or for another job that commits to the same base."""

_USAGE = (
    f"usage: commit-outputs.sh BASE/{HIDDEN_COMMIT}JOB_ID\n"
    f"       commit-outputs.sh MODE=BASE/{HIDDEN_ATTEMPT}ID ...\n"
    "as the failure of the job names them\n"
)


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when everything is visible, 1 with a sentence when not, 2 for wrong arguments."""
    try:
        message = _message(arguments)
        if message is None:
            sys.stderr.write(_USAGE)
            return 2
        asyncio.run(_repeat(message))
        for one in dict.fromkeys(output.base for output in message.outputs):
            output_files(one).remove_tree(commit_names(message.job_id).directory)
    except (FlinklikeError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"the outputs of job {message.job_id} are committed\n")
    return 0


def _message(arguments: Sequence[str]) -> CommitOutputs | None:
    """The order to carry out; None for arguments that are none. Raises InvalidInputError."""
    base, _, name = arguments[0].rstrip("/").rpartition("/") if len(arguments) == 1 else ("", "", "")
    if base and name.startswith(HIDDEN_COMMIT):
        stored = _stored(base, name)
        if stored is None:
            message = f"{base}/{name} holds no order to commit outputs: there is nothing to repeat"
            raise InvalidInputError(message)
        return stored
    outputs = [output for argument in arguments for output in _outputs(argument)]
    jobs = {_name(output.directory).partition("_")[0] for output in outputs}
    if len(jobs) != 1:
        return None
    job_id = JobId(jobs.pop())
    for base in dict.fromkeys(output.base for output in outputs):
        stored = _stored(base, commit_names(job_id).directory)
        if stored is not None:
            return stored  # a commit had begun after all, and has said what belongs to it
    return CommitOutputs(job_id, 0, VertexId(""), tuple(outputs), 1)


def _stored(base: str, name: str) -> CommitOutputs | None:
    data = output_files(base).read(f"{name}/order")
    message = read_claim(data) if data is not None else None
    if message is None or commit_names(message.job_id).directory != name:
        return None
    return replace(message, order=message.order + 1)


def _outputs(argument: str) -> list[OutputDirectory]:
    """Of MODE=DIRECTORY, or MODE=BASE/.attempt-JOB_ID_*; none for anything else."""
    mode, _, directory = argument.partition("=")
    base, _, name = directory.rstrip("/").rpartition("/")
    if mode not in OUTPUT_MODES or not base or not name.startswith(HIDDEN_ATTEMPT):
        return []
    if not name.endswith("_*"):
        return [OutputDirectory(base, one, mode) for one in named_directories(f"{base}/{name}")]
    names = [one for one in output_files(base).names() if one.startswith(name.removesuffix("*"))]
    subtasks = Counter((_attempt(one).vertex_id, _attempt(one).subtask_index) for one in names)
    if not names or max(subtasks.values()) > 1:
        several = ", ".join(sorted(names)) or "there is none"
        message = f"{directory}: a subtask has left more than one, or none: name those that are to count: {several}"
        raise InvalidInputError(message)
    return [OutputDirectory(base, f"{base}/{one}", mode) for one in sorted(names)]


def _attempt(directory: str) -> ExecutionAttemptId:
    return ExecutionAttemptId.parse(_name(directory))


def _name(directory: str) -> str:
    return directory.rpartition("/")[2].removeprefix(HIDDEN_ATTEMPT)


async def _repeat(message: CommitOutputs) -> None:
    def report(moved: int, total: int, problem: str) -> None:
        sys.stdout.write(f"{moved} of {total} files{': ' if problem else ''}{problem}\n")

    with ThreadPoolExecutor(PARALLEL_MAX) as executor:
        await OutputMove(message, Permit(), executor, report, LoopClock(), patience=PATIENCE, is_by_hand=True).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

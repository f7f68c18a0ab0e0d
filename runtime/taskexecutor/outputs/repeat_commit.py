"""`bin/commit-outputs.sh BASE/.commit-JOB_ID`: repeat a commit whose job has FAILED, from what it has left in storage.

Where no commit had begun, `MODE=BASE/.attempt-ID ...` says what is to be committed, with runs of subtasks where there
are many (`_{0-6,8}_`); `MODE=BASE/.attempt-JOB_ID_*`, where the record of what was accepted cannot be read, means all
that there are, and is refused where a subtask has left more than one. A repeat is refused while the job is not over:
its cluster has a mover then (R27). Of several repeats the latest goes on, and the others stop. Every step is the same
as a TaskManager's, and may be repeated (R28).
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from runtime.aio.clock import LoopClock
from runtime.common.errors import FlinklikeError, InvalidInputError, UnavailableError
from runtime.common.ids import ExecutionAttemptId, JobId, VertexId
from runtime.common.printable import printable
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.kept_outputs import named_directories
from runtime.gateways.task import OUTPUT_MODES, OutputDirectory
from runtime.taskexecutor.outputs.commit_records import claimed_in, commit_names, read_claim
from runtime.taskexecutor.outputs.move_permit import MoveSupersededError, Permit
from runtime.taskexecutor.outputs.output_move import OutputMove
from runtime.taskexecutor.outputs.storage_steps import PARALLEL_MAX
from runtime.taskexecutor.outputs.turn_looks import MoveReplacedError
from runtime.taskexecutor.storage.output_files import output_files
from runtime.taskexecutor.storage.output_names import HIDDEN_ATTEMPT, HIDDEN_COMMIT

PATIENCE = 60.0
"""Seconds without a success, or for another job that commits to the same base."""

JOB_IS_OVER = "--job-is-over"

_REPLACED = 3

_USAGE = (
    f"usage: commit-outputs.sh [-D key=value ...] [{JOB_IS_OVER}] BASE/{HIDDEN_COMMIT}JOB_ID\n"
    f"       commit-outputs.sh [-D key=value ...] [{JOB_IS_OVER}] MODE=BASE/{HIDDEN_ATTEMPT}ID ...\n"
    "as the failure of the job names them\n"
)


@dataclass(frozen=True, slots=True)
class KnownJob:
    """The answer of a cluster about a job. `is_going_on`: it has no result. `is_over`: it has one."""

    cluster: str
    is_going_on: bool
    is_over: bool


AskCluster = Callable[[JobId], Awaitable[KnownJob]]
"""Raises UnavailableError and OSError where no cluster answers."""


def main(arguments: Sequence[str], ask: AskCluster | None = None) -> int:
    """Exit code 0 when everything is visible, 1 with a sentence when not, 2 for wrong arguments, 3 when another
    mover has taken over. Without `ask` it is known that the job is over.
    """
    is_said_to_be_over = JOB_IS_OVER in arguments
    try:
        named = [argument for argument in arguments if argument != JOB_IS_OVER]
        if _is_done(named):
            sys.stdout.write(f"{named[0]} says that this commit is done\n")
            return 0
        message = _message(named)
        if message is None:
            sys.stderr.write(_USAGE)
            return 2
        asyncio.run(_repeat(message, ask, is_said_to_be_over=is_said_to_be_over))
        for one in dict.fromkeys(output.base for output in message.outputs):
            output_files(one).remove_tree(commit_names(message.job_id).directory)
    except (FlinklikeError, OSError) as error:
        sys.stderr.write(printable(f"{error}\n"))
        return _REPLACED if isinstance(error, MoveReplacedError | MoveSupersededError) else 1
    sys.stdout.write(f"the outputs of job {message.job_id} are committed\n")
    return 0


def _is_done(arguments: Sequence[str]) -> bool:
    """True when an earlier repeat has done everything, and died while it deleted its records."""
    base, _, name = arguments[0].rstrip("/").rpartition("/") if len(arguments) == 1 else ("", "", "")
    if not base or not name.startswith(HIDDEN_COMMIT):
        return False
    files, names = output_files(base), commit_names(JobId(name.removeprefix(HIDDEN_COMMIT)))
    return files.read(names.done) is not None and files.read(names.order) is None


def _message(arguments: Sequence[str]) -> CommitOutputs | None:
    """The order to carry out; None for arguments that are none. Raises InvalidInputError."""
    base, _, name = arguments[0].rstrip("/").rpartition("/") if len(arguments) == 1 else ("", "", "")
    if base and name.startswith(HIDDEN_COMMIT):
        stored = _stored(base, name)
        if stored is None:
            message = f"{base}/{name} holds no order to commit outputs: there is nothing to repeat"
            raise InvalidInputError(message)
        _check_leads_here(base, name, stored)
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


def _check_leads_here(base: str, name: str, stored: CommitOutputs) -> None:
    """Raises InvalidInputError when the names that the job had for its bases lead to none that has such a commit."""
    names = dict.fromkeys(output.base for output in stored.outputs)
    if all(output_files(one).read(f"{name}/order") is None for one in names):
        message = (
            f"{base}/{name} is the commit of a job that wrote to {', '.join(names)}, which leads to another directory"
            f" now: let it lead to {base} again, then repeat this"
        )
        raise InvalidInputError(message)


def _stored(base: str, name: str) -> CommitOutputs | None:
    data = output_files(base).read(f"{name}/order")
    message = read_claim(data) if data is not None else None
    if message is None or commit_names(message.job_id).directory != name:
        return None
    return replace(message, order=message.order + 1)


def _outputs(argument: str) -> list[OutputDirectory]:
    """The directories that MODE=DIRECTORY, or MODE=BASE/.attempt-JOB_ID_*, names; none for another argument."""
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


async def _repeat(message: CommitOutputs, ask: AskCluster | None, *, is_said_to_be_over: bool) -> None:
    def report(moved: int, total: int, problem: str) -> None:
        sys.stdout.write(f"{moved} of {total} files{': ' if problem else ''}{problem}\n")

    if ask is not None:
        await _check_over(message, ask, is_said_to_be_over=is_said_to_be_over)
    with ThreadPoolExecutor(PARALLEL_MAX) as executor:
        await OutputMove(message, Permit(), executor, report, LoopClock(), patience=PATIENCE, is_by_hand=True).run()


async def _check_over(message: CommitOutputs, ask: AskCluster, *, is_said_to_be_over: bool) -> None:
    """R27: before anything is written. Raises InvalidInputError while the job's cluster may move, or may begin to.

    A store that refuses (a password), or a record there that cannot be read, is no answer: there is a cluster to ask.
    """
    job_id, cluster = message.job_id, await asyncio.to_thread(_cluster, message)
    try:
        known = await ask(job_id)
    except (UnavailableError, OSError) as error:
        known, why = KnownJob("", is_going_on=False, is_over=False), f"no cluster can be asked: {error}"
    else:
        why = f"the cluster that was asked, {known.cluster}, does not know it"
    if known.is_going_on:
        text = (
            f"job {job_id} is not over: its cluster commits what it wrote, or may do so. Wait until it has ended"
            f" (bin/flinklike status {job_id}); if it has FAILED then, repeat this, and nothing is to be done if not"
        )
        raise InvalidInputError(text)
    if known.is_over or known.cluster == cluster:
        return  # also one that is not stored any more; and one of no cluster, whose mover looks for its turn itself
    if cluster != "" and not is_said_to_be_over:
        text = (
            f"whether job {job_id} is over is not known here; {why}. Repeat this where bin/flinklike finds its cluster"
            f" (FLINKLIKE_CONF_DIR, FLINKLIKE_RUN_DIR), or, when you know that the job has failed, with {JOB_IS_OVER}"
        )
        raise InvalidInputError(text)


def _cluster(message: CommitOutputs) -> str | None:
    """The cluster of the job: "" for none, None where nothing says it."""
    order = commit_names(message.job_id).order
    found = [claimed_in(output_files(base).read(order)) for base in dict.fromkeys(one.base for one in message.outputs)]
    return next((claimed.cluster for claimed in found if claimed.cluster is not None), None)

"""The failure of a commit in words: how far it came, what is kept, and which command repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.common.errors import FlinklikeError, InvalidInputError, RetryableError
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.kept_outputs import how_to_commit
from runtime.taskexecutor.outputs.commit_records import commit_names
from runtime.taskexecutor.outputs.storage_failures import in_words, is_final
from runtime.taskexecutor.storage.output_names import HIDDEN_ATTEMPT


class OvertakenError(InvalidInputError):
    """Another job has shown what this commit would undo."""


class MissingOutputsError(InvalidInputError):
    """This is not the directory in which the tasks wrote, or their files are deleted."""


class HalfVisibleError(InvalidInputError):
    """Another job has left its commit half done, so the base cannot be said to be whole."""


def missing(directory: str) -> MissingOutputsError:
    """The failure of a base without what tasks wrote there."""
    message = (
        f"{directory}, which was accepted, is gone, or the base is not the directory here in which the task wrote: it"
        " has to be reachable under one name from every TaskManager, and this name has to lead to that directory until"
        " the commit has ended"
    )
    return MissingOutputsError(message)


@dataclass(frozen=True, slots=True)
class CommitState:
    """How far a commit is. `claimed`: the bases whose directories are the job's alone by now."""

    moved: int
    total: int
    is_any_done: bool
    claimed: Sequence[str]


def explained(
    error: FlinklikeError | OSError, message: CommitOutputs, state: CommitState, elsewhere: Mapping[str, str]
) -> Exception:
    """The failure of a commit as its owner hears it. `elsewhere`: where bases lead whose paths lead elsewhere now."""
    text = _with_what_is_left(error, message, state, elsewhere)
    if isinstance(error, RetryableError):
        return type(error)(text)
    if isinstance(error, OSError) and not is_final(error):
        return OSError(error.errno, text)
    return InvalidInputError(text)


def _with_what_is_left(
    error: Exception, message: CommitOutputs, state: CommitState, elsewhere: Mapping[str, str]
) -> str:
    told = in_words(error)
    directory = commit_names(message.job_id).directory
    if isinstance(error, OvertakenError):
        left = f"{HIDDEN_ATTEMPT}{message.job_id}_* and {directory}*"
        return f"{told}: run the job again, and delete what is left of it there: {left}"
    claimed = [f"{base}/{directory}" for base in state.claimed]
    if not state.moved and not state.is_any_done:
        how_far = f"nothing of the job has become visible{' there' if isinstance(error, MissingOutputsError) else ''}"
    else:
        how_far = f"{state.moved} of {state.total} files of the job are visible"
    if not claimed:
        return f"{told}; {how_far}, {how_to_commit(message.outputs)}"
    command = shlex.join(["bin/commit-outputs.sh", claimed[0]])
    repeat = "to commit it behind that" if isinstance(error, HalfVisibleError) else "to repeat the commit"
    for base, where in elsewhere.items():
        repeat += f", once {base} leads to {where} again"
    return f"{told}; {how_far}, what its tasks wrote is kept; {repeat}: {command}"

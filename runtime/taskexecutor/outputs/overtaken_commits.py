"""Which commits a job that shows something in a base overtakes there, so that they are not repeated over it (R27, R28).

How far the commit of a job X may be in a base when another job T, whose turn it is there, shows something, and what
that means. T writes the mark, X's movers read it when they have their turn:

| X has there | a next mover of X, while X goes on | a repeat by hand, X is over | T marks |
|---|---|---|---|
| `.attempt-X_*` only (waiting, or not claimable) | plans behind T, takes the mark back | refused | `preceded` |
| `order` (claimed: waits for its turn, or was refused) | the same | refused; unless both append | `preceded` |
| `plan`, and nothing is changed | is refused; unless both append | the same | `overtaken` |
| `plan`, and failed half way; `moved` | the same | the same | `overtaken`, or T is refused (below) |
| `done` | tidies | tidies | nothing |
| a mark already | as above | as above | nothing |
| neither `order` nor attempts | has nothing to commit | the same | nothing, and takes a `preceded` away |

Of both that append the plan of neither deletes or replaces what is there, and a name that is taken is refused. X is
under way only where T has no turn: what T sees of it has failed, or its mover was lost. Beside the half of X no job may
say that the base is whole, and a mark would take away what mends it: a T that does not replace all that X changes is
refused before it has a plan, and X can be repeated. One that does leaves, behind its last old file, `replaced` beside
`overtaken`: X counts no more, whatever becomes of T's own records.

T looks behind its plans, before it shows anything, and marks the jobs that its look for turns has found; and once more
before it is done, for later ones: such a job has seen T's turn and waits, or has failed by then. X alone makes
`.commit-X/`, so `preceded` lies beside it: X may be another user. Whether an X without a claim appends is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId, is_hex_id
from runtime.gateways.task import APPEND, OVERWRITE
from runtime.taskexecutor.outputs.commit_records import PRECEDED, commit_names, read_claim
from runtime.taskexecutor.storage.core.output_plan import OutputPlan, Present, planned_mode
from runtime.taskexecutor.storage.output_files import OutputFiles
from runtime.taskexecutor.storage.output_names import HIDDEN_ATTEMPT, HIDDEN_COMMIT


@dataclass(frozen=True, slots=True)
class Other:
    """Another job that has something hidden in the base."""

    job_id: JobId
    has_attempts: bool


def others_in(top: Iterable[str], mine: JobId) -> list[Other]:
    """`top`: what the base holds at its top."""
    found: dict[str, bool] = {}
    for name in top:
        if name.startswith(HIDDEN_ATTEMPT):
            found[name.removeprefix(HIDDEN_ATTEMPT).partition("_")[0]] = True
        elif name.startswith(HIDDEN_COMMIT):
            found.setdefault(name.removeprefix(HIDDEN_COMMIT).removesuffix(PRECEDED), False)
    return [Other(JobId(job), attempts) for job, attempts in found.items() if is_hex_id(job) and job != mine]


def mark_for(files: OutputFiles, mode: str, other: Other) -> str | None:
    """The file in which a job that shows files with this mode marks the other job; None for no mark. Blocking."""
    names = commit_names(other.job_id)
    if files.read(names.done) is not None:
        return None
    plan = files.read(names.plan)
    planned = planned_mode(plan) if plan is not None else None
    if planned is not None:
        return names.overtaken if not _both_append(mode, planned) and files.read(names.overtaken) is None else None
    order = files.read(names.order)
    if order is None and not other.has_attempts:
        files.remove(names.preceded)
        return None
    if (order is not None and _both_append(mode, _claimed_mode(order))) or files.read(names.preceded) is not None:
        return None
    return names.preceded


def half_visible(files: OutputFiles, top: Iterable[str], mine: JobId, plan: OutputPlan) -> JobId | None:
    """The job whose commit has ended half way here, and which this plan does not replace as a whole; else None.

    Of several such jobs the one whose plan replaces the others. If another job has overtaken it since, and has changed
    nothing yet, that job. Blocking. The caller has its turn, so no other job changes anything. A job that the caller
    has overtaken had changed nothing, or was replaced by its plan; names that the caller has shown since may only look
    like the other one's.
    """
    if plan.mode == OVERWRITE:
        return None
    halves = {
        job_id: theirs
        for job_id, theirs in _begun(files, top, mine).items()
        if not plan.replaces_all_of(theirs) and _last_of(files, job_id) != mine
    }
    for job_id, theirs in halves.items():
        others = [other for other in halves.values() if other.replaces_all_of(theirs)]
        if all(theirs.replaces_all_of(other) for other in others):
            return _last_of(files, job_id)
    return None


def _begun(files: OutputFiles, top: Iterable[str], mine: JobId) -> dict[JobId, OutputPlan]:
    """The plans of others that are not done, count still, and may have changed something."""
    found = {}
    present: Present | None = None
    for job_id in _committing_in(top, mine):
        names = commit_names(job_id)
        data = files.read(names.plan)
        if data is None or files.read(names.done) is not None or files.read(names.replaced) is not None:
            continue
        present = files.present() if present is None else present
        theirs = OutputPlan.decode(data)
        if theirs is not None and theirs.may_have_begun(present):
            found[job_id] = theirs
    return found


def _last_of(files: OutputFiles, job_id: JobId) -> JobId:
    """The job whose commit may still be repeated: the last in the chain of jobs that have overtaken `job_id`."""
    found: dict[JobId, None] = {}
    while job_id not in found:
        found[job_id] = None
        mark = (files.read(commit_names(job_id).overtaken) or b"").decode("utf-8", "replace").strip()
        if not is_hex_id(mark):  # there is none, or its job is not known
            return job_id
        job_id = JobId(mark)
    return job_id


def replaced_marks(files: OutputFiles, top: Iterable[str], mine: JobId) -> list[str]:
    """The files in which a job that has deleted old files tells so to the jobs that it has overtaken. Blocking."""
    names = [commit_names(job_id) for job_id in _committing_in(top, mine)]
    return [one.replaced for one in names if files.read(one.overtaken) is not None]


def _committing_in(top: Iterable[str], mine: JobId) -> list[JobId]:
    found = [name.removeprefix(HIDDEN_COMMIT) for name in top if name.startswith(HIDDEN_COMMIT)]
    return [JobId(job) for job in found if is_hex_id(job) and job != mine]


def _both_append(mode: str, other: str) -> bool:
    return mode == other == APPEND


def _claimed_mode(order: bytes) -> str:
    """APPEND if the job does nothing else, in any base; what cannot be read may do anything (R31)."""
    try:
        claim = read_claim(order)
    except InvalidInputError:
        return ""
    modes = {output.mode for output in claim.outputs} if claim is not None else set()
    return modes.pop() if len(modes) == 1 else ""

"""Whether a savepoint of a script would have all the state that its queries have (R60)."""

from __future__ import annotations

from pathlib import Path

from runtime.checkpoint.savepoint.committed_files import last_entry
from runtime.common.errors import NotFoundError
from runtime.common.stream_progress import NO_BATCH, QueryPhase, ScriptLook
from runtime.jobgraph.streams import is_state_name

_SHOWN_MAX = 10
_NAMES_MAX = 100_000


def require_all(state: Path, look: ScriptLook) -> None:
    """Raises NotFoundError unless the attempt has started all queries that have committed something below `state`.

    A query that it has not started has a sink of which nothing is known here, whose log a savepoint has to have. One
    that has not committed a batch is in a savepoint only when it is held, so that none follows.
    """
    started = {one.name for one in look.queries}
    if not started:
        message = (
            "the script has started no query whose state the cluster keeps: there is nothing to make a savepoint of"
        )
        raise NotFoundError(message)
    begins = sorted(one.name for one in look.queries if one.position.batch_id == NO_BATCH)
    if begins and look.phase is not QueryPhase.HELD:
        message = f"{_listed(begins)} of the script has not committed a batch yet"
        raise NotFoundError(message)
    if look.awaited:
        message = (
            f"the script has not started {_listed(sorted(look.awaited))} of the savepoint that the job was started "
            "from: a savepoint without it would be none of the job. Wait until it runs, or cancel the job, and start "
            "it again from the savepoint with --allow-non-restored-state"
        )
        raise NotFoundError(message)
    if missing := sorted(_with_state(state) - started):
        message = (
            f"the script has not started {_listed(missing)} in this attempt, of which there is state in {state}: a "
            "savepoint without it would be none of the job. Wait until it runs, or delete its directory if it is of no "
            "query any more"
        )
        raise NotFoundError(message)


def _with_state(state: Path) -> set[str]:
    names = (one.name for one, _ in zip(state.iterdir(), range(_NAMES_MAX), strict=False)) if state.is_dir() else ()
    return {name for name in names if is_state_name(name) and _has_committed(state / name / "0" / "commits")}


def _has_committed(commits: Path) -> bool:
    return commits.is_dir() and last_entry(one.name for one in commits.iterdir()) >= 0


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN_MAX]))
    return f"{shown} and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else shown

"""What a JobManager can tell of a savepoint when a job is submitted that goes on from it, where it sees the directory.

It says early what the first attempt would say: that check stays, since most JobManagers reach no storage of users. So
nothing is refused here that is merely not seen, or that takes long to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from runtime.aio.thread_calls import ThreadCalls
from runtime.checkpoint.savepoint.query_restore import check_fit
from runtime.checkpoint.savepoint.savepoint_files import local_path, read_savepoint
from runtime.checkpoint.savepoint.savepoint_form import METADATA
from runtime.checkpoint.savepoint.shares import shapes_of
from runtime.common.errors import InvalidInputError, NotFoundError, UnavailableError
from runtime.common.ids import JobId
from runtime.gateways.overview import DispatcherView
from runtime.jobgraph.graph import JobGraph

_READ_MAX = 16 * 1024 * 1024
"""Of `_metadata`: a larger one is left to the job."""
_PATIENCE = 5.0
_LOOKS = ThreadCalls("savepoint-of-a-submit", _PATIENCE, threads=2)
"""Storage that hangs keeps these threads, and neither a submit nor the end of the process: while all are busy, the look
is left to the job."""


async def check_savepoint(
    graph: JobGraph, job_id: JobId, dispatcher: DispatcherView, *, runs_by_split: bool = False
) -> None:
    """Raises InvalidInputError where the savepoint of a new job is seen, and cannot be what its queries go on from.

    `runs_by_split`: those that can be rescaled run once for each split (R68).
    """
    if graph.savepoint is None:
        return
    try:
        await _LOOKS.call(partial(_look, graph, graph.queries_by_split if runs_by_split else graph.queries))
    except UnavailableError:
        return
    except InvalidInputError:
        if await dispatcher.find_job(job_id) is None:
            raise  # one that is known may have claimed it


def _look(graph: JobGraph, queries: Mapping[str, int]) -> None:
    settings = graph.savepoint
    assert settings is not None
    path = local_path(settings.path)
    try:
        if not path.is_dir() or _size(path / METADATA) > _READ_MAX:
            return
        savepoint = read_savepoint(path)
    except NotFoundError as error:
        message = f"{error}. Name the directory of one savepoint (savepoint-...)"
        raise InvalidInputError(message) from error
    except OSError:
        return  # it is not for this process to read
    if not queries:
        return  # a script starts them later, each by its name
    shapes = shapes_of(queries, graph.query_splits)
    check_fit(path, savepoint, shapes, allow_non_restored_state=settings.allow_non_restored_state)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0

"""Deletes savepoints by order of the leader: savepoints only, and only where they may lie (R62). Blocking.

Paths are resolved first, so a link on the way leads nowhere else; the last part of a path is no link.
"""

from __future__ import annotations

from pathlib import Path

from runtime.checkpoint.savepoint.savepoint_files import PREFIX, dispose, finish_disposal, local_path, read_savepoint
from runtime.common.errors import FlinklikeError, InvalidInputError, NotFoundError, UnavailableError
from runtime.common.ids import JobId, parse_job_id
from runtime.gateways.task_executor import DisposeSavepointRequest, SavepointDisposed, SavepointFound, SavepointRequest


def find_savepoint(request: SavepointRequest) -> SavepointFound:
    """Whose savepoint it is. Errors as TaskExecutorGateway says."""
    try:
        return SavepointFound(_job_of(_resolved(request.path, request.below)))
    except OSError as error:
        raise _unavailable(request.path, error) from error


def dispose_savepoint(request: DisposeSavepointRequest) -> SavepointDisposed:
    """Delete one. Errors as TaskExecutorGateway says."""
    path = _resolved(request.path, request.below)
    try:
        if finish_disposal(path):
            return SavepointDisposed()
        if (job_id := _job_of(path)) != request.job_id:
            message = f"{path} is a savepoint of job {job_id} by now, and one of job {request.job_id} was to be deleted"
            raise InvalidInputError(message)
        dispose(path)
    except OSError as error:
        raise _unavailable(request.path, error) from error
    return SavepointDisposed()


def _resolved(text: str, below: str) -> Path:
    path = local_path(text)
    if not path.name.startswith(PREFIX) or ".." in path.parts:
        message = f"{text[:200]!r} is not the name of a savepoint: it begins with {PREFIX}"
        raise InvalidInputError(message)
    try:
        found = path.parent.resolve(strict=True) / path.name
        allowed = local_path(below).resolve(strict=True) if below else None
    except FileNotFoundError as error:
        message = f"there is no savepoint at {path}: {error.filename} is not there"
        raise NotFoundError(message) from error
    except (OSError, RuntimeError) as error:
        raise _unavailable(text, error) from error
    if allowed is not None and allowed not in found.parents:
        message = f"{text[:200]!r} leads to {found}, which is not below {below}"
        raise InvalidInputError(message)
    return found


def _job_of(path: Path) -> JobId:
    if path.is_symlink():
        message = f"{path} is a link: name what it leads to"
        raise InvalidInputError(message)
    try:
        return parse_job_id(read_savepoint(path).job_id)
    except FlinklikeError:
        raise
    except ValueError as error:
        message = f"{path} names no job: {error}"
        raise InvalidInputError(message) from error


def _unavailable(path: str, error: Exception) -> UnavailableError:
    return UnavailableError(f"the storage of savepoint {path} does not do it: {error}")

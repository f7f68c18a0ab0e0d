"""Puts a query's directory back as a savepoint has it, before the first start of the query (R60).

Everything that can be repeated comes first, and the rename of the directory last: a restore that was interrupted at any
moment is done again from its beginning, and one that is over is never done again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from uuid import UUID, uuid5

from runtime.checkpoint.savepoint.committed_files import last_entry
from runtime.checkpoint.savepoint.file_tree import FileTree, joined, place_files, sync_directory
from runtime.checkpoint.savepoint.repartition import Partitions, PartitionsChange, change_partitions
from runtime.checkpoint.savepoint.savepoint_files import CLAIMED, dispose, finish_disposal, read_savepoint
from runtime.checkpoint.savepoint.savepoint_form import SINK_LOG, Savepoint, SavepointFile, SavepointQuery
from runtime.checkpoint.savepoint.shares import QueryShape, matched
from runtime.common.deletion import delete_tree
from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.common.json_text import parse_json
from runtime.common.stream_progress import NO_BATCH

_logger = logging.getLogger(__name__)
_SINK = SINK_LOG.split("/", maxsplit=1)[0]
_LOG_NAME = SINK_LOG.rsplit("/", 1)[-1]
_QUERY = "metadata"
_QUERIES = UUID("6f0c3a52-8f4e-5d0b-9a37-2f3f6a1f8c11")
"""Of the ids of restored queries."""
_ENTRY_BYTES_MAX = 256 * 1024 * 1024
_ORPHANS_MAX = 100_000
_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class QueryToRestore:
    """A subtask that is about to start for the first time. `directory`: where its state will be.

    `queries`: each query of the job by its uid. `sink`: the directory of its file sink, None for
    another sink. `allow_non_restored_state`: queries of the savepoint that the job does not have are left out.
    `job_id`: of the job that begins. `attempt`: what no other attempt of it is called. `partitions`: of its state, None
    for those that it has.
    """

    directory: Path
    uid: str
    subtask_index: int
    queries: Mapping[str, QueryShape]
    sink: Path | None = None
    allow_non_restored_state: bool = False
    attempt: str = ""
    partitions: Partitions | None = None
    job_id: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class RestoredQuery:
    """What was done. `batch_id`: behind which batch the query goes on, NO_BATCH for one that begins.

    `orphans`: files of the sink that no log names any more, as the query had written them behind the savepoint.
    `partitions`: what became of the partitions of its state, None where nobody has asked.
    `sources`: what it has read before.
    """

    batch_id: int = NO_BATCH
    orphans: tuple[str, ...] = ()
    partitions: PartitionsChange | None = None
    sources: tuple[str, ...] = ()


def restore_query(path: Path, query: QueryToRestore) -> RestoredQuery | None:
    """Restore a query from the savepoint at `path`. Blocking. None if it was restored before: its directory is there.

    Raises InvalidInputError for a savepoint that does not fit the job or is damaged, NotFoundError where there is none,
    and OSError of the storage. Nothing of the query has changed then.
    """
    if query.directory.exists():
        return None
    savepoint = read_savepoint(path)
    found = _found(path, savepoint, query)
    part = _empty_part(query)
    try:
        restored = RestoredQuery() if found is None else _restored(path, found, query, part)
    except InvalidInputError:
        if failures := delete_tree(part):  # no attempt follows that would delete it
            _logger.warning("what was restored of %s stays, delete %s: %s", query.uid, part, failures[0])
        raise
    sync_directory(part)
    part.rename(query.directory)
    sync_directory(query.directory.parent)
    return restored


def _empty_part(query: QueryToRestore) -> Path:
    """Where this attempt prepares the directory: Spark's JVM may still write what an attempt before has begun (R60)."""
    beginning = f".{query.directory.name}.restored-"
    if query.directory.parent.is_dir():
        for left in query.directory.parent.iterdir():
            if left.name.startswith(beginning):
                _delete(left)
    part = query.directory.with_name(f"{beginning}{query.attempt}")
    part.mkdir(parents=True)
    return part


def _restored(path: Path, found: SavepointQuery, query: QueryToRestore, part: Path) -> RestoredQuery:
    _check_sink(path, found, query.sink)
    own, log = _split(found)
    tree = FileTree(path)
    _place(tree, found.directory, own, part)
    _name_query(part, query)
    batch_id, change, note = found.snapshot.batch_id, None, None
    if query.partitions is not None:
        change = change_partitions(part, found, query.partitions)
        batch_id = change.batch_id
        if change.is_done:
            note = partial(_note, query.partitions, batch_id)
    orphans: tuple[str, ...] = ()
    if found.snapshot.sink_path and query.sink is not None:
        orphans = _put_back(tree, found.directory, log, query.sink, note)
    return RestoredQuery(batch_id, orphans, change, found.sources)


def _found(path: Path, savepoint: Savepoint, query: QueryToRestore) -> SavepointQuery | None:
    """What the query goes on from, None for one that begins. Raises as `check_fit`."""
    fit = check_fit(path, savepoint, query.queries, allow_non_restored_state=query.allow_non_restored_state)
    return fit.get(query.uid, {}).get(query.subtask_index)


def check_fit(
    path: Path, savepoint: Savepoint, queries: Mapping[str, QueryShape], *, allow_non_restored_state: bool
) -> dict[str, dict[int, SavepointQuery]]:
    """What the subtasks of each query of a job go on from, by uid; those that begin are not in it.

    Raises InvalidInputError, with both sides, when the savepoint does not fit the job's queries.
    """
    saved: dict[str, list[SavepointQuery]] = {}
    for one in savepoint.queries:
        saved.setdefault(one.uid, []).append(one)
    left = sorted(set(saved) - set(queries))
    if left and not allow_non_restored_state:
        message = (
            f"savepoint {path} has state of {_listed(left)}, which the job does not have. The savepoint's queries: "
            f"{_listed(saved)}; the job's: {_listed(queries)}. Give the queries their uids, or allow "
            "non-restored state (--allow-non-restored-state, allowNonRestoredState)"
        )
        raise InvalidInputError(message)
    found: dict[str, dict[int, SavepointQuery]] = {}
    for uid, subtasks in saved.items():
        numbers, parallelism = {one.subtask_index for one in subtasks}, subtasks[0].parallelism
        if numbers != set(range(parallelism)):
            message = f"savepoint {path} has subtasks {sorted(numbers)[:20]} of {uid!r}, of {parallelism}"
            raise InvalidInputError(message)
        if uid in queries:
            found[uid] = matched(subtasks, queries[uid], allow_non_restored_state=allow_non_restored_state)
    return found


def claim(path: Path, query: QueryToRestore) -> bool:
    """The job takes the savepoint over: the last of its queries that is restored deletes it. True if this one did.

    Idempotent: to be called after `restore_query`, whatever that has done. What another job has restored does not
    count: it may have failed in the middle. What an interrupted one has left, the next deletes; who is not the first to
    delete it leaves it. Raises OSError, and InvalidInputError as `dispose` does.
    """
    marks = path / CLAIMED / query.job_id
    try:
        marks.parent.mkdir(exist_ok=True)
        marks.mkdir(exist_ok=True)
        (marks / f"{query.uid}.{query.subtask_index}").touch()
    except (FileNotFoundError, NotADirectoryError):
        return finish_disposal(path)  # the last one was another, which may have been interrupted
    wanted = {f"{uid}.{index}" for uid, shape in query.queries.items() for index in range(shape.parallelism)}
    try:
        if not wanted <= {mark.name for mark in marks.iterdir()}:
            return False
        dispose(path)
    except (NotFoundError, FileNotFoundError, NotADirectoryError):
        return False  # another one has seen all marks before, and deletes it
    return True


def _name_query(part: Path, query: QueryToRestore) -> None:
    """A restored query is another one, with an id of its own.

    Spark lets one query of an id run in a JVM, and ends the one that runs when another is started: a job would end
    those of the jobs that were started from the same savepoint, or of the one that it was taken of.
    """
    (part / _QUERY).unlink(missing_ok=True)  # a link to the savepoint's
    named = uuid5(_QUERIES, f"{query.job_id}/{query.uid}/{query.subtask_index}")
    (part / _QUERY).write_text(json.dumps({"id": str(named)}))


def _listed(uids: Iterable[str]) -> str:
    names = sorted(uids)
    shown = ", ".join(repr(name) for name in names[:_SHOWN_MAX])
    return (f"{shown} and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else shown) or "none"


def _check_sink(path: Path, found: SavepointQuery, sink: Path | None) -> None:
    saved = found.snapshot.sink_path
    if saved and sink is not None and Path(saved) != sink:
        message = (
            f"savepoint {path} has {found.uid!r} with files in {saved}, and the query writes to {sink}: Spark's log of "
            "the files goes on from batch to batch, so the query has to write where it has written"
        )
        raise InvalidInputError(message)


def _split(found: SavepointQuery) -> tuple[list[SavepointFile], list[SavepointFile]]:
    """Files of the query's directory, and those of its sink's log."""
    own: list[SavepointFile] = []
    log: list[SavepointFile] = []
    for file in found.snapshot.files:
        (log if PurePosixPath(file.path).parts[0] == _SINK else own).append(file)
    return own, log


def _place(tree: FileTree, directory: str, files: list[SavepointFile], target: Path) -> None:
    try:
        placed = place_files(tree, [joined(directory, file.path) for file in files], target, below=directory)
    except FileNotFoundError as error:
        message = f"{error.filename} of {directory} in the savepoint is missing: it is damaged"
        raise InvalidInputError(message) from error
    for told, found in zip(files, placed, strict=True):
        if (told.size, told.sha256) != (found.size, found.sha256):
            message = f"{told.path} of {directory} in the savepoint is damaged: it is not what was saved"
            raise InvalidInputError(message)


def _note(partitions: Partitions, batch_id: int, log: Path) -> None:
    partitions.note_batch(log, batch_id)


def _put_back(
    tree: FileTree, directory: str, files: list[SavepointFile], sink: Path, note: Callable[[Path], None] | None
) -> tuple[str, ...]:
    """Have the log of a file sink end at the savepoint's batch. Returns the files that it named behind that.

    `note` writes an entry behind it, of a batch without files: Spark reads no log with a gap.
    """
    log, part, old = (sink / name for name in (_LOG_NAME, f".{_LOG_NAME}.restored", f".{_LOG_NAME}.replaced"))
    is_same = note is None and _is_same(FileTree(log), files)
    if is_same and not old.exists():
        return ()
    before = {*_named(log), *_named(old)}  # an attempt that was interrupted may have left one, or both
    if not is_same:
        _delete(part)
        _place(tree, joined(directory, SINK_LOG), [_below_log(file) for file in files], part)
        if note is not None:
            note(part)
        if log.exists():
            _delete(old)
            log.rename(old)
        part.rename(log)
        sync_directory(sink)
    orphans = sorted(before - set(_named(log)))
    _delete(old)
    return tuple(orphans)


def _delete(tree: Path) -> None:
    if failures := delete_tree(tree):
        raise failures[0]


def _is_same(log: FileTree, files: list[SavepointFile]) -> bool:
    """Does the log have what the savepoint has, and nothing behind it?"""
    there = set(log.listing().files)
    told = {_below_log(file).path: file for file in files}
    if last_entry(there) != last_entry(told) or not told.keys() <= there:
        return False
    return all(
        (found := log.digest(name)).sha256 == file.sha256 and found.size == file.size for name, file in told.items()
    )


def _below_log(file: SavepointFile) -> SavepointFile:
    return file.model_copy(update={"path": file.path.removeprefix(f"{SINK_LOG}/")})


def _named(log: Path) -> Iterator[str]:
    """Files that the log of a sink names, as far as it can be read."""
    tree, count = FileTree(log), 0
    for name in tree.listing().files:
        for line in tree.read(name, _ENTRY_BYTES_MAX).decode(errors="replace").splitlines()[1:]:
            try:
                entry = parse_json(line)
            except ValueError:
                continue  # a line that is none of Spark's names no file
            if isinstance(entry, dict) and isinstance(entry.get("path"), str) and count < _ORPHANS_MAX:
                count += 1
                yield entry["path"]

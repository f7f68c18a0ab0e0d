"""Copies a query's directory as of one committed batch, while the query may go on (R60)."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from runtime.checkpoint.savepoint.committed_files import (
    MissingFilesError,
    batch_files,
    is_log,
    is_up_to,
    last_entry,
    log_files,
    source_files,
    state_files,
)
from runtime.checkpoint.savepoint.file_tree import FileTree, joined, place_files
from runtime.checkpoint.savepoint.savepoint_form import (
    MILLIS_MAX,
    SINK_LOG,
    QuerySnapshot,
    SavepointFile,
    StateOperator,
)
from runtime.common.deletion import delete_tree
from runtime.common.errors import PermanentError
from runtime.common.json_text import parse_json
from runtime.common.stream_progress import NO_BATCH

_TRIES = 20
"""A query that runs deletes what it does not need any more; each try lists anew."""
_LOG_BYTES_MAX = 16 * 1024 * 1024
_OFFSET_MAX = 64 * 1024
_KNOWN = frozenset({"metadata", "offsets", "commits", "sources", "state"})
_STATE_DEPTH_MAX = 8
_WHOLE = frozenset({"_metadata", "_stateSchema"})
_SHARED = frozenset({"SSTs", "logs"})
_FILE_SINK = "FileSink["


class QueryCopyError(PermanentError):
    """The directory of a query cannot be copied as of the batch; the message says what is the matter with it."""


def copy_query(source: Path, target: Path, batch_id: int, sink: Path | None) -> QuerySnapshot:
    """Copy what a query's directory holds up to one committed batch. Blocking; the query may run meanwhile.

    `batch_id` is committed, or NO_BATCH: then nothing but the query's id is copied. `sink`: the directory of its file
    sink, whose log is copied up to the batch too. What an earlier try left in `target` is deleted. Files are durable
    when this returns. Raises QueryCopyError, and OSError of the storage.
    """
    cause: Exception | None = None
    for _ in range(_TRIES):
        _clear(target)
        try:
            return _Copy(source, target, batch_id).run(sink)
        except (MissingFilesError, FileNotFoundError, zipfile.BadZipFile) as error:
            cause = error
    message = f"{source} cannot be copied as of batch {batch_id}: {cause}"
    raise QueryCopyError(message) from cause


def file_sink_path(description: str) -> Path | None:
    """The directory of a file sink, from Spark's description (`FileSink[file:/table]`). None for another sink.

    Raises QueryCopyError for a file sink whose directory is not on a file system of this host.
    """
    if not description.startswith(_FILE_SINK) or not description.endswith("]"):
        return None
    url = description[len(_FILE_SINK) : -1]
    parts = urlsplit(url)
    if parts.scheme not in {"", "file"} or parts.netloc or not parts.path.startswith("/"):
        message = f"the file sink {url[:200]} is on no file system of this host: savepoints need a path"
        raise QueryCopyError(message)
    return Path(unquote(parts.path) if parts.scheme else url)


def _clear(target: Path) -> None:
    if failures := delete_tree(target):
        raise failures[0]
    target.mkdir(parents=True)


class _Copy:
    """One try. Raises MissingFilesError and FileNotFoundError for what may be there at the next one."""

    def __init__(self, source: Path, target: Path, batch_id: int) -> None:
        self._tree = FileTree(source)
        self._source, self._target, self._batch_id = source, target, batch_id

    def run(self, sink: Path | None) -> QuerySnapshot:
        names = self._tree.listing()
        self._refuse_unknown({*names.files, *names.directories} - _KNOWN)
        paths = ["metadata"] if "metadata" in names.files else []
        if self._batch_id == NO_BATCH:
            files = place_files(self._tree, paths, self._target)
            return QuerySnapshot(query_id=self._query_id(files), sink_path=str(sink or ""), files=files)
        for log in ("offsets", "commits"):
            listed = self._tree.listing(log).files
            paths += [joined(log, name) for name in batch_files(listed, self._batch_id)]
        paths += self._of_sources()
        paths += self._of_state("state", 0)
        files = place_files(self._tree, paths, self._target)
        files += self._shared_files(files)
        if sink is not None:
            files += self._sink_log(sink)
        watermark, offsets = self._position()
        return QuerySnapshot(
            query_id=self._query_id(files),
            batch_id=self._batch_id,
            watermark_millis=watermark,
            offsets=offsets,
            operators=tuple(self._operators(files)),
            sink_path=str(sink or ""),
            files=tuple(sorted(files, key=lambda file: file.path)),
        )

    def _refuse_unknown(self, unknown: set[str]) -> None:
        if unknown:
            message = (
                f"{self._source} has {sorted(unknown)[:5]}, of which this version does not know what belongs to a batch"
            )
            raise QueryCopyError(message)

    def _of_sources(self) -> Iterator[str]:
        read = self._read_up_to()
        for source in self._tree.listing("sources").directories:
            path = joined("sources", source)
            listing = self._tree.listing(path)
            if is_log(listing.files) and not listing.directories:
                # What stands in the first listing is all there when the second one begins.
                last = last_entry(listing.files)
                chosen = source_files(self._tree.listing(path).files, last, read.get(source))
                yield from (joined(path, name) for name in chosen)
            else:
                yield from self._tree.below(path)

    def _read_up_to(self) -> dict[str, int]:
        """The entry of its log up to which each source of files has been read, by the name of its directory."""
        lines = self._tree.read(f"offsets/{self._batch_id}", _LOG_BYTES_MAX).decode(errors="replace").split("\n")
        found = {}
        for place, line in enumerate(lines[2:]):
            # The second version of the form has the source's name in front.
            source, offset = (str(place), line) if line.startswith("{") else line.partition(":")[::2]
            if isinstance(number := _json(offset).get("logOffset"), int):
                found[source] = number
        return found

    def _of_state(self, path: str, depth: int) -> Iterator[str]:
        if depth > _STATE_DEPTH_MAX:
            message = f"{self._source / path} is too deep for state of Spark's"
            raise QueryCopyError(message)
        listing = self._tree.listing(path)
        if listing.files:
            try:
                chosen = state_files(listing.files, self._batch_id + 1)
            except ValueError as error:
                message = (
                    f"{self._source / path} has {str(error)[:200]!r}, which is no file of a state store known here"
                )
                raise QueryCopyError(message) from error
            yield from (joined(path, name) for name in chosen)
        for name in listing.directories:
            inner = joined(path, name)
            if name in _WHOLE:
                yield from (one for one in self._tree.below(inner) if is_up_to(one.rsplit("/", 1)[-1], self._batch_id))
            elif name not in _SHARED:
                yield from self._of_state(inner, depth + 1)

    def _shared_files(self, files: tuple[SavepointFile, ...]) -> tuple[SavepointFile, ...]:
        """Files of RocksDB that the copied versions share: a version names those that it needs."""
        shared: set[str] = set()
        for file in files:
            if file.path.startswith("state/") and file.path.endswith(".zip"):
                store = file.path.rsplit("/", 1)[0]
                shared.update(joined(store, name) for name in _named_in(self._target / file.path))
        return place_files(self._tree, sorted(shared), self._target)

    def _sink_log(self, sink: Path) -> tuple[SavepointFile, ...]:
        log = FileTree(sink / "_spark_metadata")
        names = log_files(log.listing().files, self._batch_id, must_reach=True)
        placed = place_files(log, names, self._target / SINK_LOG)
        return tuple(file.model_copy(update={"path": f"{SINK_LOG}/{file.path}"}) for file in placed)

    def _query_id(self, files: tuple[SavepointFile, ...]) -> str:
        if not any(file.path == "metadata" for file in files):
            return ""
        value = _json(self._read("metadata"))
        return str(value.get("id", ""))[:200]

    def _position(self) -> tuple[int, tuple[str, ...]]:
        lines = self._read(f"offsets/{self._batch_id}").split("\n")
        commit = self._read(f"commits/{self._batch_id}").split("\n")
        watermark = _json(commit[1]).get("nextBatchWatermarkMs", 0) if len(commit) > 1 else 0
        is_known = isinstance(watermark, int) and abs(watermark) <= MILLIS_MAX
        return watermark if is_known else 0, tuple(line[:_OFFSET_MAX] for line in lines[2:])

    def _operators(self, files: tuple[SavepointFile, ...]) -> Iterator[StateOperator]:
        newest: dict[str, str] = {}
        for file in sorted(files, key=lambda one: _trailing_number(one.path)):
            parts = file.path.split("/")
            if parts[0] == "state" and parts[2:3] == ["_metadata"]:
                newest[parts[1]] = file.path
        for path in newest.values():
            body = _json(self._read(path).split("\n", 1)[-1])
            told, stores = body.get("operatorInfo"), body.get("stateStoreInfo")
            told = told if isinstance(told, dict) else {}
            stores = [one for one in stores if isinstance(one, dict)] if isinstance(stores, list) else []
            yield StateOperator(
                operator_id=_number(told.get("operatorId")),
                name=str(told.get("operatorName", ""))[:200],
                partitions=max((_number(store.get("numPartitions")) for store in stores), default=0),
            )

    def _read(self, path: str) -> str:
        return FileTree(self._target).read(path, _LOG_BYTES_MAX).decode(errors="replace")


def _json(text: str) -> dict[str, Any]:
    """What people are shown of a file: {} for one that is none of Spark's."""
    try:
        value = parse_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 2**63 else 0


def _trailing_number(path: str) -> int:
    name = path.rsplit("/", 1)[-1]
    return int(name) if name.isascii() and name.isdigit() else -1


def _version_of_rocksdb(archive: Path) -> dict[str, Any]:
    """What the archive of a version says of its files."""
    with zipfile.ZipFile(archive) as zipped:
        info = zipped.getinfo("metadata")
        if info.file_size > _LOG_BYTES_MAX:
            message = f"metadata of {info.file_size:,} bytes"
            raise ValueError(message)
        body = parse_json(zipped.read(info).decode().split("\n", 1)[-1])
    if not isinstance(body, dict):
        message = f"a {type(body).__name__} as metadata"
        raise ValueError(message)  # noqa: TRY004 - of a file, not of an argument
    return body


def _named_in(archive: Path) -> Iterator[str]:
    """Files that a version of RocksDB's state shares with others, relative to the store's directory."""
    try:
        body = _version_of_rocksdb(archive)
    except (KeyError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        message = f"{archive} is no version of RocksDB's state: {error}"
        raise QueryCopyError(message) from error
    for kind, folder in (("sstFiles", "SSTs"), ("logFiles", "logs")):
        files = body.get(kind) or ()
        for file in files if isinstance(files, list) else ():
            # The name of this field has changed between versions.
            named = file.items() if isinstance(file, dict) else ()
            name = next((str(value) for key, value in named if key.startswith("dfs")), "")
            if "/" in name or name in {"", ".", ".."}:
                message = f"{archive} names {str(file)[:200]}, and a file of {folder} is expected"
                raise QueryCopyError(message)
            yield f"{folder}/{name}"

"""Savepoints as directories: the last step that makes one visible, reading, and deletion (R60)."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from runtime.checkpoint.savepoint.file_tree import FileTree, in_parallel, sync_directory
from runtime.checkpoint.savepoint.savepoint_form import (
    METADATA,
    METADATA_BYTES_MAX,
    Savepoint,
    SavepointFile,
    parse_savepoint,
    savepoint_text,
)
from runtime.common.deletion import delete_tree
from runtime.common.errors import InvalidInputError, NotFoundError

PREFIX = "savepoint-"
PART_SUFFIX = ".part"
CLAIMED = ".claimed"
"""In a savepoint: marks of the jobs that take it over."""
_STRANGE_SHOWN = 5


def savepoint_name(job_id: str, number: str) -> str:
    """The name of a savepoint: six characters of the job id, and 12 hexadecimal digits."""
    return f"{PREFIX}{job_id[:6]}-{number}"


def part_path(target: Path, name: str) -> Path:
    """Where a savepoint is written before it is whole."""
    return target / f".{name}{PART_SUFFIX}"


def local_path(text: str) -> Path:
    """The path of a savepoint, or of a directory of them: an absolute path or a file URL. Raises InvalidInputError."""
    parts = urlsplit(text) if text.startswith("file:") else None
    if parts is not None and parts.netloc in {"", "localhost"}:
        text = unquote(parts.path)
    if not text.startswith("/") or "\0" in text:
        message = (
            f"{text[:200]!r} is no absolute path and no file URL: savepoints are kept in directories that all "
            "TaskManagers reach under one name"
        )
        raise InvalidInputError(message)
    return Path(text)


def finish_savepoint(part: Path, savepoint: Savepoint) -> Path:
    """Verify every file of a savepoint that is being written, write `_metadata`, and rename it. Blocking.

    `part` is `.<name>.part` and holds exactly what `savepoint` says. Returns `<name>` beside it, durable. Idempotent:
    the same savepoint once more returns the same. Raises InvalidInputError for files that are missing, others, or too
    many.
    """
    final = _final_path(part)
    if not part.exists() and (final / METADATA).exists():
        if read_savepoint(final) != savepoint:
            message = f"{final} is another savepoint"
            raise InvalidInputError(message)
        return final
    for query in savepoint.queries:
        (part / query.directory).mkdir(parents=True, exist_ok=True)
    _verify(part, savepoint)
    # From here on nothing makes `part` anew: where it was discarded meanwhile, this fails.
    with (part / METADATA).open("wb") as out:
        out.write(savepoint_text(savepoint))
        out.flush()
        os.fsync(out.fileno())
    for folder in {part, *(part / query.uid for query in savepoint.queries)}:
        sync_directory(folder)
    part.rename(final)
    sync_directory(final.parent)
    return final


def discard_part(part: Path) -> None:
    """Delete what was written for a savepoint that is none. Nothing where it is gone, or whole. Raises OSError.

    It is renamed first, so `finish_savepoint`, which may be at work elsewhere, makes it visible whole or not at all.
    """
    doomed = part.with_name(f"{part.name}.discarded-{secrets.token_hex(4)}")  # each TaskManager of the job may be here
    try:
        part.rename(doomed)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
            return
        raise
    if failures := delete_tree(doomed):
        raise failures[0]


def read_savepoint(path: Path) -> Savepoint:
    """What a savepoint says of itself. Reads `_metadata` only: files are verified when they are used.

    Raises NotFoundError where there is no savepoint, InvalidInputError for one that cannot be read.
    """
    try:
        text = FileTree(path).read(METADATA, METADATA_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"there is no savepoint at {path}: it has no {METADATA}"
        raise NotFoundError(message) from error
    return parse_savepoint(text, str(path / METADATA))


def savepoints_in(directory: Path) -> Iterator[Path]:
    """Savepoints in a directory, oldest first by their names. Raises OSError where there is no directory."""
    for entry in sorted(directory.iterdir()):
        if entry.name.startswith(PREFIX) and not entry.is_symlink() and (entry / METADATA).is_file():
            yield entry


def disposed_path(path: Path) -> Path:
    """What a savepoint is called while it is deleted."""
    return path.with_name(f".{path.name}.disposed")


def dispose(path: Path) -> None:
    """Delete a savepoint. Follows no link. Raises NotFoundError and InvalidInputError as `read_savepoint`, and OSError.

    Raises InvalidInputError also where anything lies in it that is no part of it, at any depth. It is renamed first
    (`.<name>.disposed`), so what an interrupted call leaves is no savepoint any more; the next one deletes that.
    """
    if finish_disposal(path):
        return
    if path.is_symlink():
        message = f"{path} is a link: dispose of what it leads to"
        raise InvalidInputError(message)
    savepoint = read_savepoint(path)
    if strange := _strange(path, savepoint):
        message = f"{path} holds {strange} beside the savepoint: nothing is deleted"
        raise InvalidInputError(message)
    doomed = disposed_path(path)
    path.rename(doomed)
    if failures := delete_tree(doomed):
        raise failures[0]


def finish_disposal(path: Path) -> bool:
    """Delete what an interrupted `dispose` of this savepoint has left. False where there is nothing. Raises OSError."""
    left = disposed_path(path)
    if path.exists() or left.is_symlink() or not left.is_dir():
        return False
    if failures := delete_tree(left):
        raise failures[0]
    return True


def _strange(path: Path, savepoint: Savepoint) -> list[str]:
    """Some of what lies in the directory of a savepoint and is none of its files, also hidden files and links."""
    known = {
        METADATA,
        *(f"{query.directory}/{one.path}" for query in savepoint.queries for one in query.snapshot.files),
    }
    found: list[str] = []
    for folder, folders, files in os.walk(path):
        at = Path(folder).relative_to(path)
        links = [name for name in folders if Path(folder, name).is_symlink()]
        if at == Path() and CLAIMED in folders:
            folders.remove(CLAIMED)
        found += [name for one in (*files, *links) if (name := str(at / one)) not in known and not _is_of_nfs(one)]
        if len(found) >= _STRANGE_SHOWN:
            break
    return sorted(found)[:_STRANGE_SHOWN]


def _is_of_nfs(name: str) -> bool:
    """A file that was deleted while somebody had it open, on NFS: it goes by itself."""
    return name.startswith(".nfs")


def _final_path(part: Path) -> Path:
    name = part.name
    if not name.startswith(f".{PREFIX}") or not name.endswith(PART_SUFFIX):
        message = f"{part} is not the name of a savepoint that is being written"
        raise InvalidInputError(message)
    return part.with_name(name[1 : -len(PART_SUFFIX)])


def _verify(part: Path, savepoint: Savepoint) -> None:
    tree = FileTree(part)
    told = {f"{query.directory}/{file.path}": file for query in savepoint.queries for file in query.snapshot.files}
    found = set(tree.below())
    if wrong := sorted(found.symmetric_difference(told)):
        message = f"{part} has files that the savepoint does not have, or the other way: {wrong[:5]}"
        raise InvalidInputError(message)

    def differs(path: str) -> str:
        file: SavepointFile = tree.digest(path)
        return "" if (file.size, file.sha256) == (told[path].size, told[path].sha256) else path

    if changed := sorted(path for path in in_parallel(differs, told) if path):
        message = f"{part} has files that have changed since they were copied: {changed[:5]}"
        raise InvalidInputError(message)

"""What a script has left in its job's working directory: said at its end, since it is deleted with the job (R24).

A user of spark-submit looks for a relative output where the command was started, and would find nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from runtime.taskexecutor.slot_protocol.sizes import format_bytes

ENTRIES_MAX = 5000
"""So many are counted: the end of a script does not wait for a look at all that it has written."""

_NAMED_MAX = 10
_TABLES = "spark-warehouse/"
_CACHE = "__pycache__"


@dataclass(slots=True)
class _Walk:
    """Regular files below a directory. Links are not followed: their targets stay."""

    entries: int = 0
    files: int = 0
    size_bytes: int = 0

    @property
    def is_cut(self) -> bool:
        """True when not all entries were looked at."""
        return self.entries > ENTRIES_MAX

    def count(self, entry: os.DirEntry[str]) -> int:
        """Add the files of an entry; returns their number. A file that is deleted meanwhile does not count."""
        before = self.files
        waiting = [entry]
        while waiting and not self.is_cut:
            with suppress(FileNotFoundError):
                self._add(waiting.pop(), waiting)
        return self.files - before

    def _add(self, found: os.DirEntry[str], waiting: list[os.DirEntry[str]]) -> None:
        self.entries += 1
        if found.is_file(follow_symlinks=False):
            self.size_bytes += found.stat(follow_symlinks=False).st_size
            self.files += 1
        elif found.is_dir(follow_symlinks=False):
            waiting += [one for one in _entries(found.path) if one.name != _CACHE]


def _entries(path: str) -> list[os.DirEntry[str]]:
    """At most so many; none of a deleted directory."""
    try:
        with os.scandir(path) as entries:
            return list(islice(entries, ENTRIES_MAX + 1))
    except FileNotFoundError:
        return []


def _is_empty(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and not _entries(entry.path)


def _shown(entry: os.DirEntry[str]) -> str:
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def vanishing_files(directory: str, brought: Collection[str]) -> str:
    """The warning, one line; "" when nothing is there but what the job has brought, by its name at the top.

    Raises OSError.
    """
    known = {*brought, _CACHE}
    walk = _Walk()
    made = sorted((entry for entry in _entries(directory) if entry.name not in known), key=lambda entry: entry.name)
    names = [_shown(entry) for entry in made if walk.count(entry) or (walk.is_cut and not _is_empty(entry))]
    if not names:
        return ""
    count = "1 file" if walk.files == 1 else f"{walk.files} files"
    tables = f"; tables ({_TABLES}) stay with taskmanager.spark.warehouse" if _TABLES in names else ""
    return (
        f"WARNING: the working directory of this job is deleted when it ends, and with it what its script has left "
        f"there: {_listed(names)} ({'at least ' if walk.is_cut else ''}{count}, {format_bytes(walk.size_bytes)}). "
        f"Write what is to stay to an absolute path{tables}."
    )


def vanishing_tables(warehouse: str, job_directory: str) -> str:
    """The warning of tables in a catalog that goes with its Spark environment, as Hive's does; "" when there is none.

    `vanishing_files` tells of those in the job's directory, and those elsewhere than in the working directory of the
    TaskManager stay. Raises OSError.
    """
    path, own = Path(warehouse.removeprefix("file:")), Path(job_directory)
    if not warehouse or own in path.parents or own.parents[2] not in path.parents:
        return ""
    names = sorted(_shown(entry) for entry in _entries(str(path)) if not entry.name.startswith("."))
    if not names:
        return ""
    return (
        "WARNING: the Hive catalog of this job is deleted with its Spark environment, and with it the tables in its "
        f"warehouse: {_listed(names)}. taskmanager.spark.warehouse, or a metastore of yours "
        "(spark.hadoop.hive.metastore.uris), keeps tables."
    )

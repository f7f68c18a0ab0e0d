"""What a slot process writes for a JVM of another user: the group of the file may read it (R50).

Everything a task makes has a group that the JVM is in. Only what is made for its owner alone, whatever the mask says,
has to be opened: pyspark's temporary files, and copies that keep the mode of what they were copied from.
"""

from __future__ import annotations

import importlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

_WRITERS = ("pyspark.core.context", "pyspark.core.broadcast")
"""Modules that write files for the JVM: data of `parallelize` and `createDataFrame`, and broadcast values."""
_READ_BY_GROUP = 0o640


def share_temporary_files() -> None:
    """From now on the JVM can read what pyspark writes for it. Idempotent."""
    for name in _WRITERS:
        module: Any = importlib.import_module(name)
        module.NamedTemporaryFile = _temporary_file


def _temporary_file(*arguments: Any, **options: Any) -> Any:
    made = tempfile.NamedTemporaryFile(*arguments, **options)  # noqa: SIM115 - the caller closes it
    os.fchmod(made.fileno(), _READ_BY_GROUP)
    return made


def share(path: Path) -> None:
    """The group gets what the owner has, of all below it too. Links are left alone."""
    for root, names, files in os.walk(path):
        for one in (*names, *files):
            _share(Path(root) / one)
    _share(path)


def _share(path: Path) -> None:
    mode = path.lstat().st_mode
    wanted = mode | (mode & stat.S_IRWXU) >> 3
    if not stat.S_ISLNK(mode) and mode != wanted:  # what the job has brought is root's, and shared already
        path.chmod(stat.S_IMODE(wanted))

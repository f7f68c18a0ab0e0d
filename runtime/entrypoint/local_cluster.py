"""`python -m runtime.entrypoint.local_cluster [-D key=value ...]`: a JobManager and a TaskManager in one process.

For `run_local()`: jobs live in memory, the parts talk over the local transport, slots are the same processes as
everywhere. Says one line of JSON on stdout when jobs can be submitted; ends when its standard input does, so that it
never outlives who started it. Then it removes the directory that was made for it: who started it may be gone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.common.deletion import delete_tree
from runtime.entrypoint.guarded import run_guarded

if TYPE_CHECKING:
    from runtime.entrypoint.local_cluster_process import LocalCluster


def _load() -> type[LocalCluster]:
    from runtime.entrypoint.local_cluster_process import LocalCluster  # noqa: PLC0415 - never loaded by the guard

    return LocalCluster


DIRECTORY_VARIABLE = "FLINKLIKE_LOCAL_DIRECTORY"
DIRECTORY_PREFIX = "flinklike-local-"


def _remove_directory() -> None:
    """That of the call, by its name; never another one."""
    directory = Path(os.environ.get(DIRECTORY_VARIABLE, ""))
    if directory.name.startswith(DIRECTORY_PREFIX):
        delete_tree(directory)


def main() -> int:
    """Become the guard, or, below one, the cluster; the exit code."""
    return run_guarded("local cluster", _load, _remove_directory)


if __name__ == "__main__":
    sys.exit(main())

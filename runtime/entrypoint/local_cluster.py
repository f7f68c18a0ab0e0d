"""`python -m runtime.entrypoint.local_cluster [-D key=value ...]`: a JobManager and a TaskManager in one process.

For `run_local()`: jobs live in memory, the parts use the local transport, and slots are the same processes as in a
cluster. Prints one line of JSON when jobs can be submitted. Ends when its standard input ends, so it never outlives its
parent, and removes the directory that the parent has made for it.
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
    """Remove the directory of this call. Its name is checked, so that no other directory is removed."""
    directory = Path(os.environ.get(DIRECTORY_VARIABLE, ""))
    if directory.name.startswith(DIRECTORY_PREFIX):
        delete_tree(directory)


def main() -> int:
    """Become the guard, or, as a child of one, the cluster. Returns the exit code."""
    return run_guarded("local cluster", _load, _remove_directory)


if __name__ == "__main__":
    sys.exit(main())

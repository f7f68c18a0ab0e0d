"""`python -m runtime.entrypoint.local_cluster [-D key=value ...]`: a JobManager and a TaskManager in one process.

For `run_local()`: jobs live in memory, the parts talk over the local transport, slots are the same processes as
everywhere. Says one line of JSON on stdout when jobs can be submitted; ends when its standard input does, so that it
never outlives who started it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from runtime.entrypoint.guarded import run_guarded

if TYPE_CHECKING:
    from runtime.entrypoint.local_cluster_process import LocalCluster


def _load() -> type[LocalCluster]:
    from runtime.entrypoint.local_cluster_process import LocalCluster  # noqa: PLC0415 - never loaded by the guard

    return LocalCluster


def main() -> int:
    """Become the guard, or, below one, the cluster; the exit code."""
    return run_guarded("local cluster", _load)


if __name__ == "__main__":
    sys.exit(main())

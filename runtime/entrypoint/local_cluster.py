"""`python -m runtime.entrypoint.local_cluster [-D key=value ...]`: a JobManager and a TaskManager in one process.

For `run_local()`: jobs live in memory, the parts talk over the local transport, slots are the same processes as
everywhere. Says one line of JSON on stdout when jobs can be submitted; ends when its standard input does, so that it
never outlives who started it.
"""

from __future__ import annotations

import os
import sys

from runtime.taskexecutor.guard.channel import GuardChannel


def main() -> int:
    """Become the guard, or, below one, the cluster; the exit code."""
    channel = GuardChannel.from_environment(os.environ)
    if channel is None:
        from runtime.taskexecutor.guard.guard_main import run_guard  # noqa: PLC0415 - only the guard needs it

        run_guard([sys.executable, *sys.orig_argv[1:]], os.environ)
    from runtime.entrypoint.local_cluster_process import LocalCluster  # noqa: PLC0415 - never loaded by the guard
    from runtime.entrypoint.process import run_process  # noqa: PLC0415

    return run_process("local cluster", lambda: LocalCluster(channel), sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())

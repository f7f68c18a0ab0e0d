"""`python -m runtime.entrypoint.task_manager`: first the guard, which runs the same command again as the main process.

Standard library only at this level: the guard loads this module and nothing of the rest (R13).
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Become the guard, or, below one, the TaskManager; the exit code."""
    from runtime.taskexecutor.guard.channel import GuardChannel  # noqa: PLC0415 - standard library only

    channel = GuardChannel.from_environment(os.environ)
    if channel is None:
        from runtime.taskexecutor.guard.guard_main import run_guard  # noqa: PLC0415 - only the guard needs it

        run_guard([sys.executable, *sys.orig_argv[1:]], os.environ)
    from runtime.entrypoint.process import run_process  # noqa: PLC0415 - only the main process may load the rest
    from runtime.entrypoint.task_manager_process import TaskManagerProcess  # noqa: PLC0415

    return run_process("TaskManager", lambda: TaskManagerProcess(channel), sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())

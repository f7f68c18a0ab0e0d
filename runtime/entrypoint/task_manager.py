"""`python -m runtime.entrypoint.task_manager`: first the guard, which runs the same command again as the main process.

Standard library only at this level: the guard loads this module and nothing of the rest (R13).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from runtime.entrypoint.guarded import run_guarded

if TYPE_CHECKING:
    from runtime.entrypoint.task_manager_process import TaskManagerProcess


def _load() -> type[TaskManagerProcess]:
    from runtime.entrypoint.task_manager_process import TaskManagerProcess  # noqa: PLC0415 - never loaded by the guard

    return TaskManagerProcess


def main() -> int:
    """Become the guard, or, as a child of one, the TaskManager. Returns the exit code."""
    return run_guarded("TaskManager", _load)


if __name__ == "__main__":
    sys.exit(main())

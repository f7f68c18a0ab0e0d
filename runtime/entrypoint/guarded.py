"""A process with slots runs as a child of its guard, which is the same command (R13).

Standard library only at this level: the guard loads this module and nothing of the rest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.entrypoint.process import ClusterProcess
    from runtime.taskexecutor.guard.channel import GuardChannel


def run_guarded(
    name: str, load: Callable[[], Callable[[GuardChannel], ClusterProcess]], at_end: Callable[[], None] = lambda: None
) -> int:
    """Become the guard, or, as a child of one, the process. Returns the exit code.

    `load` imports the process; only the child calls it. The watcher calls `at_end` when all processes have ended.
    """
    from runtime.security.file_mask import keep_files_private  # noqa: PLC0415 - standard library only
    from runtime.system.linux import refuse_tracing  # noqa: PLC0415 - standard library only
    from runtime.taskexecutor.guard.channel import GuardChannel  # noqa: PLC0415 - standard library only

    keep_files_private(os.environ)
    refuse_tracing()
    channel = GuardChannel.from_environment(os.environ)
    if channel is None:
        from runtime.taskexecutor.guard.watcher import run_guard  # noqa: PLC0415 - only the guard needs it

        run_guard([sys.executable, *sys.orig_argv[1:]], os.environ, at_end)
    from runtime.entrypoint.process import run_process  # noqa: PLC0415 - only the main process may load the rest

    make = load()
    return run_process(name, lambda: make(channel), sys.argv[1:])

"""What a TaskManager itself says about an attempt, where the user looks: in the attempt's stderr."""

from __future__ import annotations

import logging
import os

from runtime.taskexecutor.attempt_logs.log_files import attempt_directory
from runtime.taskexecutor.slots.work import SlotWork

logger = logging.getLogger(__name__)


def tell(work: SlotWork, sentence: str) -> None:
    """As a line of its own. Where the file cannot be written, the TaskManager's log has it. Does not block."""
    path = attempt_directory(work.log_directory, work.task.attempt_id) / "stderr"
    try:
        # The task may have put a link there, and this process may be allowed more than the task.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as stderr:
            stderr.write(f"{sentence}\n")
    except OSError as error:
        logger.warning("the stderr of task %s lacks this, %s: %s", work.task.attempt_id, error, sentence)

"""The lines about a change that a task has made for all jobs of its JVM: in its own log, and in the TaskManager's
(R45).
"""

from __future__ import annotations

import logging
import os

from runtime.common.printable import printable
from runtime.common.spark_conf import ISOLATION, JVM
from runtime.taskexecutor.attempt_logs.log_files import attempt_directory
from runtime.taskexecutor.slots.work import SlotWork
from runtime.taskexecutor.spark.environment import ChangeOutcome, JvmChange

logger = logging.getLogger(__name__)

_OUTCOMES = {
    ChangeOutcome.RESTORED: "It was put back.",
    ChangeOutcome.WAITS: (
        "When the tasks that use Spark there have ended, or after a while, it is put back, or the JVM is replaced; "
        "none begins until then."
    ),
    ChangeOutcome.SPENT: "It cannot be put back, so the JVM is replaced.",
}
_ADVICE = (
    "The JVM runs the Spark of other jobs too. What a job needs of this belongs into its own conf (spark.*, "
    f"spark.hadoop.*), or into a JVM of its own ({ISOLATION}: {JVM})."
)


def log(job_id: str, change: JvmChange) -> None:
    """In the TaskManager's log. Nothing for a session that has not worked when it was changed."""
    if change.changes:
        who = " or ".join(dict.fromkeys((f"job {job_id}", *(f"job {other}" for other in change.jobs))))
        logger.warning("%s has changed the JVM of all jobs: %s. %s", who, _what(change), _OUTCOMES[change.outcome])


def tell(work: SlotWork, change: JvmChange) -> None:
    """In the attempt's stderr, as `log`."""
    if change.changes:
        others = [job_id for job_id in change.jobs if job_id != work.task.attempt_id.job_id]
        who = "this task" + (f", or one of job {' or '.join(others)}," if others else "")
        where = "what all jobs share in the JVM of its TaskManager"
        _append(work, f"{who} has changed {where}: {_what(change)}. {_OUTCOMES[change.outcome]} {_ADVICE}\n")


def _what(change: JvmChange) -> str:
    return printable("; ".join(change.changes))


def _append(work: SlotWork, text: str) -> None:
    path = attempt_directory(work.log_directory, work.task.attempt_id) / "stderr"
    try:
        # The task may have put a link there, and this process may be allowed more than the task.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as stderr:
            stderr.write(text)
    except OSError as error:
        logger.warning("the log of task %s does not say what it has changed: %s", work.task.attempt_id, error)

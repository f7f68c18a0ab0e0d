"""The lines about a change that a task has made for all jobs of its JVM: in its own log, and in the TaskManager's
(R45).
"""

from __future__ import annotations

import logging

from runtime.common.printable import printable
from runtime.common.spark_conf import ISOLATION, JVM
from runtime.taskexecutor.slots import own_words
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
        own_words.tell(work, f"{who} has changed {where}: {_what(change)}. {_OUTCOMES[change.outcome]} {_ADVICE}")


def _what(change: JvmChange) -> str:
    return printable("; ".join(change.changes))

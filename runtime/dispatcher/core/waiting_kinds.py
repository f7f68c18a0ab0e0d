"""What a job waits for, as one of a few words: the sentences for people have numbers and addresses in them.

The sentences stand where they are made; `tests/unit/dispatcher/test_waiting_kinds.py` makes each and looks here.
"""

from __future__ import annotations

from runtime.gateways.dispatcher import JobSummary

_KINDS: tuple[tuple[str, str], ...] = (
    ("the job store does not take ", "store"),
    ("its end could not be stored", "store"),
    ("it is tried again", "store"),
    ("committing", "commit"),
    ("tasks wait for their restart", "restart"),
    ("to say what they have of the job", "takeover"),
    ("until they have stopped", "takeover"),
    ("no TaskManager is registered", "taskmanagers"),
    ("TaskManagers are registered, ", "taskmanagers"),
    ("the JobMaster cannot reach any of ", "taskmanagers"),
    (" TaskManagers offers a slot with ", "fitting_slots"),
    ("no TaskManager with Spark has such slots", "fitting_slots"),
    ("no room for its Spark environment", "spark_environment"),
    ("serve another namespace", "tenancy"),
    ("no free slot: ", "slots"),
    ("JobMaster process", "jobmasters"),
    ("loading the job graph", "loading"),
    (" tasks to stop", "stopping"),
)
"""A part of the sentence -> the word. The first that is there counts."""

WAITING_FOR_SLOTS = "waiting for slots"


def waiting_kind(summary: JobSummary) -> str:
    """A word for what the job waits for (`runtime.metrics.table.WAITING_REASONS`), "" when it gets on or has ended."""
    reason = summary.pending_reason
    if not reason or summary.status.is_globally_terminal:
        return ""
    for part, kind in _KINDS:
        if part in reason:
            return kind
    if reason.startswith(WAITING_FOR_SLOTS):  # nobody has said yet why, or none can fulfil what the job asks for
        return "fitting_slots" if reason.startswith(f"{WAITING_FOR_SLOTS}: ") else "slots"
    return "other"

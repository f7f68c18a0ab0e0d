"""Bodies of /events and /audit. Times are milliseconds since 1970, those of the audit log as it has them."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict


class Event(TypedDict):
    """`kind`: an EventKind. `subject`: the process by incarnation, or "". `job`: its id, or "". `count`: 0, or how many
    events this one stands for."""

    id: str
    timestamp: int
    kind: str
    message: str
    subject: str
    job: str
    namespace: str
    count: int


class Events(TypedDict):
    """Oldest first. `next`: the id behind which the next page begins, "" when there was never an event. `gap`: events
    behind the asked id may be missing."""

    events: list[Event]
    next: str
    gap: bool


class AuditLines(TypedDict):
    """The last lines of the audit log of the JobManager that leads, oldest first, as the file has them."""

    lines: list[dict[str, Any]]

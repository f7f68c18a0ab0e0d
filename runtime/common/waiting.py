"""What a job waits for: a kind, for programs, and a sentence, for people. Whoever makes the sentence says the kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class WaitingKind(Enum):
    """What a job waits for, by the words of the metrics; NOTHING: it gets on."""

    NOTHING = ""
    SLOTS = "slots"
    TASK_MANAGERS = "taskmanagers"
    FITTING_SLOTS = "fitting_slots"
    SPARK_ENVIRONMENT = "spark_environment"
    TENANCY = "tenancy"
    QUEUE = "queue"
    JOB_MASTERS = "jobmasters"
    TAKEOVER = "takeover"
    RESTART = "restart"
    COMMIT = "commit"
    STOPPING = "stopping"
    STORE = "store"
    LOADING = "loading"
    OTHER = "other"

    @classmethod
    def of(cls, word: str) -> WaitingKind:
        """The kind of a word of another process; OTHER for one that this release does not know."""
        try:
            return cls(word)
        except ValueError:
            return cls.OTHER


@dataclass(frozen=True, slots=True)
class Waiting:
    """True in a condition when there is something that the job waits for. The sentence stays the same meanwhile."""

    kind: WaitingKind
    reason: str

    def __bool__(self) -> bool:
        return bool(self.reason)


NOT_WAITING = Waiting(WaitingKind.NOTHING, "")

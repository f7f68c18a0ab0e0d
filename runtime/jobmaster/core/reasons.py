"""Why a job does not get on, in one sentence that stays the same while it waits."""

from __future__ import annotations

from runtime.common.states import JobStatus
from runtime.scheduler.core.scheduler import Scheduler


class Reasons:
    """The latest word of the job store, of the initialization, and of the ResourceManager; "" if there is none."""

    __slots__ = ("initialization", "resources", "store")

    def __init__(self) -> None:
        self.initialization = "loading the job graph"
        self.resources = ""
        self.store = ""

    def pending(self, status: JobStatus, scheduler: Scheduler | None) -> str:
        """What the job waits for now, "" if it gets on."""
        if self.store:
            return self.store
        if status is JobStatus.INITIALIZING:
            return self.initialization
        return scheduler.pending_reason(self.resources) if scheduler is not None else ""

"""Why a job does not get on: the first of those who have something to say."""

from __future__ import annotations

from runtime.common.states import JobStatus
from runtime.common.waiting import NOT_WAITING, Waiting, WaitingKind
from runtime.scheduler.core.scheduler import Scheduler


class Reasons:
    """The latest word of the job store, of the initialization, and of the ResourceManager, if there is any."""

    __slots__ = ("initialization", "resources", "store")

    def __init__(self) -> None:
        self.initialization = Waiting(WaitingKind.LOADING, "loading the job graph")
        self.resources = NOT_WAITING
        self.store = NOT_WAITING

    def pending(self, status: JobStatus, scheduler: Scheduler | None) -> Waiting:
        """What the job waits for now."""
        if self.store:
            return self.store
        if status is JobStatus.INITIALIZING:
            return self.initialization
        return scheduler.waiting(self.resources) if scheduler is not None else NOT_WAITING

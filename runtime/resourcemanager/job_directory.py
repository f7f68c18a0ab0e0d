"""The Dispatcher of the same term, as its ResourceManager uses it: owners of jobs, and what is known of jobs."""

from __future__ import annotations

from typing import Protocol

from runtime.common.ids import Incarnation, JobId
from runtime.common.shares import JobShare
from runtime.common.waiting import Waiting
from runtime.gateways.overview import JobMasterLoad


class JobOwnerView(Protocol):
    """The process that runs a job."""

    @property
    def incarnation(self) -> Incarnation:
        """The process."""

    @property
    def address(self) -> str:
        """Where TaskManagers dial it."""

    @property
    def epoch(self) -> int:
        """The epoch under which it runs the job (E)."""


class JobDirectory(Protocol):
    """The Dispatcher, as far as its ResourceManager needs it. Calls never block, but for `drain_job_master`."""

    def owner_of(self, job_id: JobId, /) -> JobOwnerView | None:
        """The owner of the job by the leader's own writing, None while there is none."""

    def is_owned_by(self, job_id: JobId, incarnation: Incarnation, epoch: int, /) -> bool:
        """True if the owner key names this process and epoch, as surely as this leader can know it."""

    def is_unfinished(self, job_id: JobId, /) -> bool:
        """True if the job is known and has no result."""

    def namespace_of(self, job_id: JobId, /) -> str:
        """The namespace that the job belongs to (R48)."""

    def share_of(self, job_id: JobId, /) -> JobShare:
        """Where the job waits for slots (D-128)."""

    def keeps_outputs(self, job_id: JobId, /) -> bool:
        """True if the outputs of a job that is over may still have to be committed by hand (R28)."""

    def notify_resources(self, job_id: JobId, waiting: Waiting, /) -> None:
        """Tell the owner why requirements are not fulfilled, or that they are."""

    def owner_cut_off(self, job_id: JobId, epoch: int, /) -> None:
        """The owner under that epoch cannot reach TaskManagers that the job needs (R7)."""

    def job_master_load(self) -> JobMasterLoad | None:
        """The JobMaster processes, and what waits for one; None while the Dispatcher does not serve."""

    def advise_job_masters(self, advice: str, /) -> None:
        """What jobs are to say that wait for a JobMaster process: who starts one, or why none starts."""

    async def drain_job_master(self, incarnation: Incarnation, /, *, is_draining: bool) -> None:
        """Have a process give away its jobs and take none, or take jobs again. NotFoundError, ConflictError,
        UnavailableError.
        """

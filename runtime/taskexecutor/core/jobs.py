"""The jobs a TaskManager has something of: each one's owner, its epoch, and what its tasks share.

Invariants: a job's epoch never falls (R1, R7); an order of a lower epoch is refused; a job that has ended here does not
come back by an order of the epoch it ended under, or a lower one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from runtime.common.ids import Incarnation, JobId
from runtime.gateways.task import JobInformation

ENDED_JOBS_REMEMBERED_MAX = 8192


@dataclass(frozen=True, slots=True)
class JobMasterLocation:
    """One JobMaster process: which, and where."""

    incarnation: Incarnation
    address: str


class Job:
    """What this TaskManager knows of one job."""

    __slots__ = ("epoch", "information", "is_adopted", "is_ending", "is_over", "job_id", "keeps_outputs", "owner")

    def __init__(self, job_id: JobId, epoch: int, owner: JobMasterLocation) -> None:
        self.job_id = job_id
        self.epoch = epoch
        self.owner = owner
        self.information: JobInformation | None = None
        self.is_ending = False
        self.is_over = False
        """True when it ends because it has a result, and not because this TaskManager leaves."""
        self.keeps_outputs = False
        """Finished outputs may be committed by hand (R28); once true, this stays true."""
        self.is_adopted = False
        """True once an owner has asked for a census: the epoch is kept until the job ends, also if nothing is here."""


class JobTable:
    """The jobs of one TaskManager, and those that ended lately."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, Job] = {}
        self._ended: OrderedDict[JobId, int] = OrderedDict()

    def get(self, job_id: JobId) -> Job | None:
        """A job that is here, also while it ends."""
        return self._jobs.get(job_id)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def owned_by(self, incarnation: Incarnation) -> list[Job]:
        """The jobs of one JobMaster process that have not ended."""
        return [job for job in self._jobs.values() if job.owner.incarnation == incarnation and not job.is_ending]

    def refusal(self, job_id: JobId, epoch: int) -> str:
        """Why an order for the job under this epoch is refused (R1), "" when it is not."""
        job = self._jobs.get(job_id)
        if job is not None:
            if job.is_ending:
                return f"job {job_id} is ending on this TaskManager"
            if epoch < job.epoch:
                return f"order for job {job_id} at epoch {epoch} refused: its owner is at epoch {job.epoch}"
        elif epoch <= self._ended.get(job_id, -1):
            return f"job {job_id} has ended on this TaskManager"
        return ""

    def is_over(self, job_id: JobId, epoch: int) -> bool:
        """The job ends or has ended here: its slots are free or being freed, its reports and files of no use."""
        job = self._jobs.get(job_id)
        return job.is_ending if job is not None else epoch <= self._ended.get(job_id, -1)

    def admit(self, job_id: JobId, epoch: int, owner: JobMasterLocation) -> Job:
        """The job under the highest epoch that was heard of. Only after `refusal` had nothing to say."""
        job = self._jobs.get(job_id)
        if job is None:
            job = self._jobs[job_id] = Job(job_id, epoch, owner)
        elif epoch > job.epoch:
            job.epoch, job.owner = epoch, owner
        return job

    def forget(self, job_id: JobId, *, has_ended: bool) -> None:
        """The job leaves. If it has ended, orders of its epoch are refused from now on."""
        job = self._jobs.pop(job_id, None)
        if job is None or not has_ended:
            return
        self._ended[job_id] = max(job.epoch, self._ended.pop(job_id, -1))
        if len(self._ended) > ENDED_JOBS_REMEMBERED_MAX:
            self._ended.popitem(last=False)

"""Jobs of a control plane as its leader sees them."""

from __future__ import annotations

from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import SubmitJobRequest
from tests.kit.control_plane.plane import ControlPlane, Leader, eventually


async def ready(leader: Leader, count: int) -> None:
    """So many JobMaster processes are there, and take jobs."""
    await eventually(lambda: [one.state for one in leader.dispatcher.job_masters()] == ["ready"] * count)


async def start_job(plane: ControlPlane) -> tuple[Leader, SubmitJobRequest]:
    """A leader, and a job with an owner."""
    leader = await plane.lead()
    if plane.is_split:
        await plane.start_job_master()
    job = plane.new_job()
    await leader.dispatcher.submit_job(job)
    await until(leader, job.job_id, JobStatus.CREATED)
    return leader, job


def status(leader: Leader, job_id: JobId) -> JobStatus | None:
    """The job's state; None when it is not known."""
    summary = leader.dispatcher.job_summary(job_id)
    return None if summary is None else summary.status


async def until(leader: Leader, job_id: JobId, wanted: JobStatus) -> None:
    """The job gets into that state."""
    await eventually(lambda: status(leader, job_id) is wanted, f"{wanted.name} of job {job_id}")

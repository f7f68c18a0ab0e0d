"""The JobMaster processes that a leader knows, and which one takes the next job.

Invariant: a job is counted at one process at most, from the start of the transaction that names it as owner.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from runtime.common.ids import Incarnation, JobId


@dataclass(slots=True)
class JobMasterProcess:
    """One JobMaster process, as this leader knows it. `sent`: jobs whose assignment went out on the present stream.

    `is_draining`: the process has said that it takes no jobs; `drain_requests` wait until it says so. `is_new`: it has
    registered (again), and has not been given its share of the jobs of other processes.
    """

    incarnation: Incarnation
    address: str
    capacity: int
    version: str = ""
    metrics_address: str = ""
    worker_id: str = ""
    is_connected: bool = False
    is_draining: bool = False
    is_new: bool = True
    drain_requests: dict[int, bool] = field(default_factory=dict)
    jobs: set[JobId] = field(default_factory=set)
    sent: set[JobId] = field(default_factory=set)
    cpu_fraction: float = 0.0
    memory_bytes: int = 0
    loop_lag: float = 0.0
    last_assigned: int = 0
    jobs_assigned: int = 0

    @property
    def state(self) -> str:
        """`ready`, `draining` or `disconnected`, as REST shows it."""
        if not self.is_connected:
            return "disconnected"
        return "draining" if self.is_draining else "ready"

    @property
    def may_get_room(self) -> bool:
        """True if it has room, or would have it if its stream were back."""
        return not self.is_draining and len(self.jobs) < self.capacity

    @property
    def has_room(self) -> bool:
        """True if it may be given one more job."""
        return self.is_connected and self.may_get_room


class ProcessTable:
    """All JobMaster processes of one term."""

    def __init__(self) -> None:
        self._processes: dict[Incarnation, JobMasterProcess] = {}
        self._assignments = 0
        self.advice = ""
        """Who starts a process, or why none starts; "" without a driver."""

    def __iter__(self) -> Iterator[JobMasterProcess]:
        return iter(self._processes.values())

    def __contains__(self, incarnation: Incarnation) -> bool:
        return incarnation in self._processes

    def get(self, incarnation: Incarnation) -> JobMasterProcess | None:
        """The process, if it is known."""
        return self._processes.get(incarnation)

    def known(self, incarnation: Incarnation, address: str, capacity: int) -> JobMasterProcess:
        """Enter a process, or update its address and capacity."""
        process = self._processes.get(incarnation)
        if process is None:
            process = self._processes[incarnation] = JobMasterProcess(incarnation, address, capacity)
        process.address = address
        process.capacity = capacity
        return process

    def remove(self, incarnation: Incarnation) -> JobMasterProcess | None:
        """Forget a process."""
        return self._processes.pop(incarnation, None)

    def least_loaded(self, excluded: Container[Incarnation]) -> JobMasterProcess | None:
        """The process for the next job: lowest share of its capacity in use, then the one that waited longest."""
        best: JobMasterProcess | None = None
        best_rank = (0.0, 0)
        for process in self._processes.values():
            if not process.has_room or process.incarnation in excluded:
                continue
            rank = (len(process.jobs) / process.capacity, process.last_assigned)
            if best is None or rank < best_rank:
                best, best_rank = process, rank
        return best

    def have_all_refused(self, refused_by: Mapping[Incarnation, bool]) -> bool:
        """True if every known process has refused a job for good, so that waiting is of no use."""
        return bool(self._processes) and all(refused_by.get(incarnation) for incarnation in self._processes)

    def reserve(self, process: JobMasterProcess, job_id: JobId) -> None:
        """Count a job at a process."""
        self._assignments += 1
        process.last_assigned = self._assignments
        process.jobs_assigned += 1
        process.jobs.add(job_id)

    def release(self, incarnation: Incarnation, job_id: JobId) -> None:
        """No longer count a job at a process."""
        process = self._processes.get(incarnation)
        if process is not None:
            process.jobs.discard(job_id)
            process.sent.discard(job_id)

    def shortage(self) -> str:
        """Why no process can take a job."""
        connected = [process for process in self._processes.values() if process.is_connected]
        if not connected:
            advice = self.advice or "start one with bin/start-jobmaster.sh start"
            return f"no JobMaster process is registered: {advice}"
        if all(process.is_draining for process in connected):
            advice = self.advice or "undrain one, or start another one"
            return f"all {len(connected)} JobMaster processes are draining: {advice}"
        return f"all {len(connected)} JobMaster processes are full{self.advice and f': {self.advice}'}"

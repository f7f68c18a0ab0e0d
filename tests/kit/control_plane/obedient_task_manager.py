"""A TaskManager that does what it is told at once and runs nothing: over any RpcService, for whole control planes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from runtime.common.clock import Clock
from runtime.common.errors import UnavailableError
from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, JobId
from runtime.common.states import ExecutionState
from runtime.common.version import PROTOCOL_VERSION, VERSION
from runtime.gateways.job_master import (
    CancelTasks,
    DeployTasks,
    EndJob,
    FreeSlots,
    OfferSlots,
    SlotOffer,
    TaskReports,
)
from runtime.gateways.resource_manager import (
    JobsEnded,
    RegisterTaskManager,
    RequestSlot,
    ResourceProfile,
    SlotReport,
    SlotsFreed,
    SlotStatus,
    TaskManagerRegistered,
)
from runtime.gateways.task import FailureInfo, TaskExecutionReport, TaskMetrics
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.service import HeartbeatService
from runtime.rpc.service import MessageStream, RpcService, StreamHello, StreamKind

Outcome = Callable[[ExecutionAttemptId], ExecutionState | None]
"""attempt -> its terminal state, or None: it runs until it is cancelled."""


def finish(_attempt: ExecutionAttemptId) -> ExecutionState | None:
    """Every attempt finishes."""
    return ExecutionState.FINISHED


class ObedientTaskManager:
    """Run it with `run`; it dials the JobMaster process that a slot request names."""

    def __init__(
        self, incarnation: Incarnation, rpc: RpcService, clock: Clock, *, slots: int, outcome: Outcome = finish
    ) -> None:
        self.incarnation = incarnation
        self._rpc = rpc
        self._clock = clock
        self._outcome = outcome
        self._slots: list[RequestSlot | None] = [None] * slots
        self._masters: dict[Incarnation, MessageStream] = {}
        self._dialling: dict[Incarnation, list[RequestSlot]] = {}
        self._heartbeats = HeartbeatService(clock)
        self._timing = HeartbeatTiming(0.5, 10.0)
        self._group: asyncio.TaskGroup | None = None
        self._leader: MessageStream | None = None
        self.registered = asyncio.Event()
        self.deployed: list[ExecutionAttemptId] = []

    async def run(self, leader_address: str) -> None:
        """Serve one leader until its stream ends."""
        hello = StreamHello(
            StreamKind.TASK_MANAGER_TO_RESOURCE_MANAGER, self.incarnation, self._rpc.server.address, 1, None, ""
        )
        stream = self._leader = await self._rpc.open_stream(leader_address, hello, timeout=5.0)
        stream.send(
            RegisterTaskManager(
                self.incarnation, "obedient", self._rpc.server.address, "", "boot", VERSION, PROTOCOL_VERSION,
                len(self._slots), ResourceProfile(), False, b"{}", 2, 1 << 30,
            )
        )  # fmt: skip
        async with asyncio.TaskGroup() as self._group:
            beating = self._group.create_task(self._heartbeats.run())
            try:
                with self._heartbeats.keep_alive(stream, self._timing):
                    while True:
                        for message in await stream.receive():
                            self._obey_leader(message, stream)
            except UnavailableError:
                beating.cancel()

    def _obey_leader(self, message: object, stream: MessageStream) -> None:
        match message:
            case TaskManagerRegistered():
                statuses = tuple(SlotStatus(index, None, None) for index in range(len(self._slots)))
                stream.send(SlotReport(statuses, is_warm=True, assigned_tasks=0))
                self.registered.set()
            case RequestSlot():
                self._slots[message.slot_index] = message
                self._offer(message)
            case JobsEnded(jobs=jobs):
                self._free(lambda held: held.job_id in jobs)
            case _:
                pass

    def _offer(self, request: RequestSlot) -> None:
        peer = request.job_master_incarnation
        stream = self._masters.get(peer)
        if stream is not None:
            offer = SlotOffer(request.allocation_id, request.slot_index)
            stream.send(OfferSlots(request.job_id, request.epoch, (offer,), "obedient"))
            return
        waiting = self._dialling.setdefault(peer, [])
        waiting.append(request)
        if len(waiting) == 1:
            assert self._group is not None
            _ = self._group.create_task(self._serve_master(peer, request.job_master_address))

    async def _serve_master(self, peer: Incarnation, address: str) -> None:
        kind = StreamKind.TASK_MANAGER_TO_JOB_MASTER
        hello = StreamHello(kind, self.incarnation, self._rpc.server.address, 1, None, peer)
        stream = self._masters[peer] = await self._rpc.open_stream(address, hello, timeout=5.0)
        for request in self._dialling.pop(peer):
            self._offer(request)
        try:
            with self._heartbeats.keep_alive(stream, self._timing):
                while True:
                    for message in await stream.receive():
                        self._obey_master(message, stream)
        except UnavailableError:
            del self._masters[peer]

    def _obey_master(self, message: object, stream: MessageStream) -> None:
        match message:
            case DeployTasks(job_id=job_id, epoch=epoch, tasks=tasks):
                reports: list[TaskExecutionReport] = []
                for task in tasks:
                    self.deployed.append(task.attempt_id)
                    reports.append(self._report(task.attempt_id, ExecutionState.RUNNING))
                    state = self._outcome(task.attempt_id)
                    if state is not None:
                        reports.append(self._report(task.attempt_id, state))
                stream.send(TaskReports(job_id, epoch, tuple(reports)))
            case CancelTasks(job_id=job_id, epoch=epoch, attempts=attempts):
                ended = tuple(self._report(attempt, ExecutionState.CANCELED) for attempt in attempts)
                stream.send(TaskReports(job_id, epoch, ended))
            case FreeSlots(allocations=allocations):
                self._free_allocations(allocations)
            case EndJob(job_id=job_id):
                self._free_job(job_id)
            case _:
                pass

    def _report(self, attempt: ExecutionAttemptId, state: ExecutionState) -> TaskExecutionReport:
        now = self._clock.epoch_millis()
        failure = None
        if state is ExecutionState.FAILED:
            failure = FailureInfo("ValueError", "as told", "ValueError: as told", "USER", True, now)
        return TaskExecutionReport(attempt, state, now, failure, b"", (), (), TaskMetrics())

    def _free_allocations(self, allocations: tuple[AllocationId, ...]) -> None:
        self._free(lambda held: held.allocation_id in allocations)

    def _free_job(self, job_id: JobId) -> None:
        self._free(lambda held: held.job_id == job_id)

    def _free(self, is_over: Callable[[RequestSlot], bool]) -> None:
        freed = []
        for index, held in enumerate(self._slots):
            if held is not None and is_over(held):
                self._slots[index] = None
                freed.append(held.allocation_id)
        if freed and self._leader is not None:
            self._leader.send(SlotsFreed(tuple(freed)))

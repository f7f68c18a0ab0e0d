"""Events of JobMaster processes, made from the few values that a test of the Dispatcher's registry is about."""

from __future__ import annotations

from runtime.common.ids import Incarnation, JobId
from runtime.common.version import PROTOCOL_VERSION
from runtime.dispatcher.core import events as ev
from runtime.gateways.dispatcher import JobAssignmentRefused, JobInventoryEntry, JobMasterHeartbeat, RegisterJobMaster
from runtime.highavailability.records import DRAINING, JobMasterRecord


def process_known(
    incarnation: Incarnation, address: str, capacity: int, *, is_draining: bool = False
) -> ev.ProcessKnown:
    state = DRAINING if is_draining else "ready"
    return ev.ProcessKnown(JobMasterRecord(incarnation, address, capacity, 0, state, "v"))


def process_registered(
    incarnation: Incarnation, address: str, capacity: int, version: str, *, is_draining: bool = False
) -> ev.ProcessRegistered:
    registration = RegisterJobMaster(incarnation, address, version, PROTOCOL_VERSION, capacity, is_draining)
    return ev.ProcessRegistered(registration)


def inventory_received(
    incarnation: Incarnation,
    inventory: tuple[JobInventoryEntry, ...],
    assignment: int,
    cpu_fraction: float,
    memory_bytes: int,
    *,
    is_draining: bool = False,
) -> ev.InventoryReceived:
    heartbeat = JobMasterHeartbeat(inventory, assignment, cpu_fraction, memory_bytes, is_draining)
    return ev.InventoryReceived(incarnation, heartbeat)


def assignment_refused(
    incarnation: Incarnation, job_id: JobId, epoch: int, reason: str, *, is_permanent: bool
) -> ev.AssignmentRefused:
    return ev.AssignmentRefused(incarnation, JobAssignmentRefused(job_id, epoch, reason, is_permanent))

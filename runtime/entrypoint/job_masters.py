"""What a process has that runs JobMasters: the JobMaster process, and the JobManager in standalone mode."""

from __future__ import annotations

from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.service import HeartbeatService
from runtime.highavailability.services import HighAvailabilityServices
from runtime.jobmaster.connections import TaskManagerConnections
from runtime.jobmaster.endpoint import JobMasterSettings
from runtime.jobmaster.runner import DefaultJobManagerRunnerFactory, GraphSource
from runtime.rpc.service import RpcService, StreamKind


def serve_job_masters(rpc: RpcService, heartbeats: HeartbeatService, timing: HeartbeatTiming) -> TaskManagerConnections:
    """The streams from TaskManagers to the JobMasters of this process. Whoever calls this runs them."""
    connections = TaskManagerConnections(heartbeats, timing)
    # R1: a stream serves many jobs, and every message on it carries its job's epoch.
    rpc.server.add_stream_handler(
        StreamKind.TASK_MANAGER_TO_JOB_MASTER, connections.serve, check=lambda _target, _sender: None
    )
    return connections


def job_manager_runner_factory(
    ha: HighAvailabilityServices,
    connections: TaskManagerConnections,
    graph_source: GraphSource,
    clock: Clock,
    entropy: Entropy,
) -> DefaultJobManagerRunnerFactory:
    """Runners of the JobMasters of this process. `graph_source` reads graphs that did not travel inline."""
    return DefaultJobManagerRunnerFactory(
        store=ha.owner_job_store(),
        connections=connections,
        graph_source=graph_source,
        clock=clock,
        entropy=entropy,
        settings=JobMasterSettings(),
    )

"""The parts of a process that runs JobMasters: a JobMaster process, or the JobManager in standalone mode."""

from __future__ import annotations

from runtime.aio.retry import RetryPolicy
from runtime.config.options.cluster import RPC_TIMEOUT
from runtime.entrypoint.job_master_options import job_master_settings
from runtime.entrypoint.process import ProcessContext
from runtime.entrypoint.process_options import heartbeat_timing, seconds
from runtime.heartbeat.service import HeartbeatService
from runtime.highavailability.services import HighAvailabilityServices
from runtime.jobmaster.census_taker import CensusAsker, CensusSettings, CensusTaker
from runtime.jobmaster.connections import TaskManagerConnections
from runtime.jobmaster.fence_keeper import FenceKeeper
from runtime.jobmaster.job_master_metrics import JobMasterMetrics
from runtime.jobmaster.runner import DefaultJobManagerRunnerFactory, GraphSource
from runtime.metrics import table
from runtime.metrics.registry import Sample
from runtime.rpc.service import RpcService, StreamKind

CENSUS_RETRY = RetryPolicy(delay_initial=0.05, delay_max=1.0)


def serve_job_masters(
    context: ProcessContext, rpc: RpcService, ha: HighAvailabilityServices, heartbeats: HeartbeatService
) -> TaskManagerConnections:
    """The streams from TaskManagers to the JobMasters of this process. The caller runs the result."""
    timing = heartbeat_timing(context.configuration)
    connections = TaskManagerConnections(heartbeats, timing, context.clock)
    connections.ask_census = CensusAsker(_census_settings(context, ha), rpc).ask
    # R1: a stream serves many jobs, and every message on it carries its job's epoch.
    rpc.server.add_stream_handler(
        StreamKind.TASK_MANAGER_TO_JOB_MASTER, connections.serve, check=lambda _target, _sender: None
    )
    return connections


def job_manager_runner_factory(
    context: ProcessContext,
    rpc: RpcService,
    ha: HighAvailabilityServices,
    connections: TaskManagerConnections,
    graph_source: GraphSource,
    fences: FenceKeeper | None,
) -> DefaultJobManagerRunnerFactory:
    """Runners of the JobMasters of this process. `graph_source` reads graphs that did not travel inline."""
    registry = context.reporting.registry
    registry.read("jobmaster", lambda: [Sample(table.OWNED_JOBS, connections.jobs)])
    return DefaultJobManagerRunnerFactory(
        store=ha.owner_job_store(),
        connections=connections,
        graph_source=graph_source,
        census_taker=_census_taker(context, rpc, ha) if ha.is_durable else None,
        clock=context.clock,
        entropy=context.entropy,
        settings=job_master_settings(context.configuration, can_fence=fences is not None),
        fence_keeper=fences,
        metrics=JobMasterMetrics(registry),
        traces=context.tracing.reporter,
    )


def fence_keeper(context: ProcessContext, ha: HighAvailabilityServices) -> FenceKeeper | None:
    """Fences of the JobMasters of this process (R14), None without etcd. The caller runs the result."""
    return FenceKeeper(ha.owner_fences(), context.entropy.child("fences")) if ha.is_durable else None


def _census_taker(context: ProcessContext, rpc: RpcService, ha: HighAvailabilityServices) -> CensusTaker:
    settings = _census_settings(context, ha)
    return CensusTaker(settings, rpc, ha.follow_task_managers, clock=context.clock, entropy=context.entropy)


def _census_settings(context: ProcessContext, ha: HighAvailabilityServices) -> CensusSettings:
    timeout = seconds(context.configuration, RPC_TIMEOUT)
    return CensusSettings(context.incarnation, ha.cluster, timeout, CENSUS_RETRY)

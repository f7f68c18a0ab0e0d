"""What a process has that runs JobMasters: the JobMaster process, and the JobManager in standalone mode."""

from __future__ import annotations

from datetime import timedelta

from runtime.aio.retry import RetryPolicy
from runtime.common.restart_strategies import ATTEMPTS_MAX
from runtime.config.configuration import Configuration
from runtime.config.options import failures as options
from runtime.config.options.cluster import RPC_TIMEOUT
from runtime.config.options.taskmanager import ISOLATION_TIMEOUT
from runtime.entrypoint.option_mapping import heartbeat_timing, seconds
from runtime.entrypoint.process import ProcessContext
from runtime.heartbeat.service import HeartbeatService
from runtime.highavailability.jobs.fences import unconfirmed_wait
from runtime.highavailability.services import HighAvailabilityServices
from runtime.jobgraph.restart_strategy import (
    DEFAULT_RESTART_STRATEGY,
    NO_RESTART,
    ExponentialDelayRestartStrategy,
    FailureRateRestartStrategy,
    FixedDelayRestartStrategy,
    RestartStrategy,
)
from runtime.jobmaster.census_taker import CensusAsker, CensusSettings, CensusTaker
from runtime.jobmaster.connections import TaskManagerConnections
from runtime.jobmaster.endpoint import JobMasterSettings
from runtime.jobmaster.failure_enrichers import load_failure_enrichers
from runtime.jobmaster.fence_keeper import FenceKeeper
from runtime.jobmaster.runner import DefaultJobManagerRunnerFactory, GraphSource
from runtime.rpc.service import RpcService, StreamKind
from runtime.scheduler.core.failover_settings import FailoverSettings

CENSUS_RETRY = RetryPolicy(delay_initial=0.05, delay_max=1.0)


def serve_job_masters(
    context: ProcessContext, rpc: RpcService, ha: HighAvailabilityServices, heartbeats: HeartbeatService
) -> TaskManagerConnections:
    """The streams from TaskManagers to the JobMasters of this process. Whoever calls this runs them."""
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
    return DefaultJobManagerRunnerFactory(
        store=ha.owner_job_store(),
        connections=connections,
        graph_source=graph_source,
        census_taker=_census_taker(context, rpc, ha) if ha.is_durable else None,
        clock=context.clock,
        entropy=context.entropy,
        settings=job_master_settings(context.configuration, can_fence=fences is not None),
        fence_keeper=fences,
    )


def fence_keeper(context: ProcessContext, ha: HighAvailabilityServices) -> FenceKeeper | None:
    """Fences of the JobMasters of this process (R14), where TaskManagers can read them. Whoever calls this runs it."""
    return FenceKeeper(ha.owner_fences(), context.entropy.child("fences")) if ha.is_durable else None


def _census_taker(context: ProcessContext, rpc: RpcService, ha: HighAvailabilityServices) -> CensusTaker:
    settings = _census_settings(context, ha)
    return CensusTaker(settings, rpc, ha.follow_task_managers, clock=context.clock, entropy=context.entropy)


def _census_settings(context: ProcessContext, ha: HighAvailabilityServices) -> CensusSettings:
    timeout = seconds(context.configuration, RPC_TIMEOUT)
    return CensusSettings(context.incarnation, ha.cluster, timeout, CENSUS_RETRY)


def job_master_settings(configuration: Configuration, *, can_fence: bool = False) -> JobMasterSettings:
    """What the cluster's configuration says to every JobMaster. Raises InvalidInputError."""
    isolation_timeout = seconds(configuration, ISOLATION_TIMEOUT)
    return JobMasterSettings(
        failover=FailoverSettings(
            restart_strategy=restart_strategy(configuration),
            user_failures=configuration.get(options.USER_FAILURE),
            is_full=configuration.get(options.FAILOVER_STRATEGY) == "full",
            exceptions_max=configuration.get(options.EXCEPTION_HISTORY_SIZE),
            prior_attempts_max=configuration.get(options.ATTEMPTS_HISTORY_SIZE),
            enrich=load_failure_enrichers(configuration.get(options.FAILURE_ENRICHERS)),
            unconfirmed_wait=unconfirmed_wait(isolation_timeout) if can_fence else None,
        )
    )


def restart_strategy(configuration: Configuration) -> RestartStrategy:
    """The strategy of jobs that have none of their own. Without a type, exponential delay with a few restarts."""
    get = configuration.get
    match get(options.RESTART_STRATEGY):
        case "none":
            return NO_RESTART
        case "fixed-delay":
            return FixedDelayRestartStrategy(
                attempts=get(options.FIXED_DELAY_ATTEMPTS), delay_seconds=_seconds(get(options.FIXED_DELAY_DELAY))
            )
        case "failure-rate":
            return FailureRateRestartStrategy(
                max_failures_per_interval=get(options.FAILURE_RATE_MAX),
                failure_rate_interval_seconds=_seconds(get(options.FAILURE_RATE_INTERVAL)),
                delay_seconds=_seconds(get(options.FAILURE_RATE_DELAY)),
            )
        case chosen:
            attempts = get(options.EXPONENTIAL_DELAY_ATTEMPTS)
            if attempts is None:
                attempts = ATTEMPTS_MAX if chosen else DEFAULT_RESTART_STRATEGY.attempts_before_reset_backoff
            return ExponentialDelayRestartStrategy(
                initial_backoff_seconds=_seconds(get(options.EXPONENTIAL_DELAY_INITIAL)),
                max_backoff_seconds=_seconds(get(options.EXPONENTIAL_DELAY_MAX)),
                backoff_multiplier=get(options.EXPONENTIAL_DELAY_MULTIPLIER),
                reset_backoff_threshold_seconds=_seconds(get(options.EXPONENTIAL_DELAY_RESET)),
                jitter_factor=get(options.EXPONENTIAL_DELAY_JITTER),
                attempts_before_reset_backoff=attempts,
            )


def _seconds(duration: timedelta) -> float:
    return duration.total_seconds()

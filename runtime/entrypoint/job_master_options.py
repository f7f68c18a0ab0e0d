"""From options to the settings of JobMasters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.restart_strategies import ATTEMPTS_MAX
from runtime.common.states import JobType, SchedulerType
from runtime.config.configuration import Configuration
from runtime.config.job_configuration import checkpoint_settings, job_value
from runtime.config.option import ConfigOption
from runtime.config.options import adaptive_batch, speculation
from runtime.config.options import adaptive_scheduler as adaptive
from runtime.config.options import failures as options
from runtime.config.options.adaptive_batch import SCHEDULER
from runtime.config.options.taskmanager import ISOLATION_TIMEOUT
from runtime.entrypoint.process_options import seconds
from runtime.highavailability.jobs.fences import unconfirmed_wait
from runtime.jobgraph.restart_strategy import (
    DEFAULT_RESTART_STRATEGY,
    NO_RESTART,
    ExponentialDelayRestartStrategy,
    FailureRateRestartStrategy,
    FixedDelayRestartStrategy,
    RestartStrategy,
)
from runtime.jobgraph.streams import names_streams
from runtime.jobmaster.endpoint import JobMasterSettings
from runtime.jobmaster.failure_enrichers import load_failure_enrichers
from runtime.scheduler.core.adaptive.settings import AdaptiveSchedulerSettings
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.scheduler.core.parallelism.settings import AdaptiveSettings
from runtime.scheduler.core.scheduler_factory import scheduler_type_of
from runtime.scheduler.core.speculation.settings import SpeculativeSettings


def job_master_settings(configuration: Configuration, *, can_fence: bool = False) -> JobMasterSettings:
    """Settings of every JobMaster of the cluster. Raises InvalidInputError."""
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
        ),
        checkpointing=checkpoint_settings(configuration, {}),
        scheduler_type=SchedulerType(configuration.get(SCHEDULER)),
        adaptive_of=partial(adaptive_settings, configuration),
        adaptive=adaptive_scheduler_settings(configuration),
    )


def runs_by_split(configuration: Configuration) -> bool:
    """True if streaming jobs have the AdaptiveScheduler."""
    is_reactive = configuration.get(adaptive.SCHEDULER_MODE) == "reactive"
    configured = SchedulerType(configuration.get(SCHEDULER))
    chosen = scheduler_type_of(JobType.STREAMING, configured, is_reactive=is_reactive)
    return chosen is SchedulerType.ADAPTIVE


def adaptive_scheduler_settings(configuration: Configuration) -> AdaptiveSchedulerSettings:
    """Of streaming jobs; in reactive mode slots are not waited for where nothing says so, as in Flink."""
    is_reactive = configuration.get(adaptive.SCHEDULER_MODE) == "reactive"

    def chosen(option: ConfigOption[timedelta]) -> float:
        return seconds(configuration, option) if configuration.has(option) or not is_reactive else 0.0

    wait = configuration.get(adaptive.RESOURCE_WAIT_TIMEOUT)
    if is_reactive and not configuration.has(adaptive.RESOURCE_WAIT_TIMEOUT):
        wait = adaptive.FOR_EVER
    return AdaptiveSchedulerSettings(
        is_reactive=is_reactive,
        resource_wait=None if wait == adaptive.FOR_EVER else _seconds(wait),
        submission_stabilization=chosen(adaptive.SUBMISSION_STABILIZATION),
        cooldown=seconds(configuration, adaptive.COOLDOWN),
        executing_stabilization=chosen(adaptive.EXECUTING_STABILIZATION),
        history_max=configuration.get(adaptive.RESCALE_HISTORY_SIZE),
    )


def settled_checkpointing(configuration: Configuration, graph: bytes) -> CheckpointSettings | None:
    """What holds for a streaming job that is submitted, under every owner: its own options over those of this cluster.

    `graph` is its JSON, which has been checked. None for a job without streaming queries.
    """
    if not names_streams(graph):
        return None
    return checkpoint_settings(configuration, json.loads(graph).get("configuration", {}))


def adaptive_settings(configuration: Configuration, job: Mapping[str, str]) -> AdaptiveSettings:
    """Bounds of a parallelism that is chosen for a job: its own options over those of the cluster."""
    value = partial(job_value, configuration, job)
    return AdaptiveSettings(
        is_enabled=value(adaptive_batch.AUTO_PARALLELISM_ENABLED),
        parallelism_min=value(adaptive_batch.PARALLELISM_MIN),
        parallelism_max=value(adaptive_batch.PARALLELISM_MAX),
        bytes_per_task=value(adaptive_batch.BYTES_PER_TASK),
        parallelism_default=value(adaptive_batch.PARALLELISM_DEFAULT),
        skew_factor=value(adaptive_batch.SKEW_FACTOR),
        speculation=speculative_settings(configuration, job),
    )


def speculative_settings(configuration: Configuration, job: Mapping[str, str]) -> SpeculativeSettings:
    """When a task of a job counts as slow, and what follows: its own options over those of the cluster."""
    value = partial(job_value, configuration, job)
    return SpeculativeSettings(
        is_enabled=value(speculation.SPECULATIVE_ENABLED),
        concurrent_max=value(speculation.SPECULATIVE_CONCURRENT_MAX),
        block_seconds=value(speculation.SPECULATIVE_BLOCK).total_seconds(),
        check_seconds=value(speculation.SLOW_CHECK_INTERVAL).total_seconds(),
        baseline_ratio=value(speculation.SLOW_BASELINE_RATIO),
        baseline_multiplier=value(speculation.SLOW_BASELINE_MULTIPLIER),
        baseline_lower_bound=value(speculation.SLOW_BASELINE_LOWER_BOUND).total_seconds(),
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

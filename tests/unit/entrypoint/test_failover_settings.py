"""From the cluster's configuration to the failover settings of every job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.common.errors import InvalidInputError
from runtime.config.loading import load
from runtime.entrypoint.job_master_options import job_master_settings, restart_strategy
from runtime.jobgraph.restart_strategy import (
    NO_RESTART,
    ExponentialDelayRestartStrategy,
    FailureRateRestartStrategy,
    FixedDelayRestartStrategy,
    RestartStrategy,
)
from runtime.scheduler.core.failover.settings import FailoverSettings

EXPONENTIAL = "restart-strategy.exponential-delay."


def settings(*options: str) -> FailoverSettings:
    return job_master_settings(load(None, environment={}, dynamic=options)).failover


def of_attempts(attempts: int) -> ExponentialDelayRestartStrategy:
    return ExponentialDelayRestartStrategy(attempts_before_reset_backoff=attempts)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], of_attempts(3)),
        (
            [f"{EXPONENTIAL}attempts-before-reset-backoff=7"],
            ExponentialDelayRestartStrategy(attempts_before_reset_backoff=7),
        ),
        (["restart-strategy.type=exponential-delay"], ExponentialDelayRestartStrategy()),
        (["restart-strategy.type=ExponentialDelay"], ExponentialDelayRestartStrategy()),
        (["restart-strategy.type=none"], NO_RESTART),
        (["restart-strategy.type=off"], NO_RESTART),
        (["restart-strategy.type=disable"], NO_RESTART),
        (["restart-strategy.type=fixed-delay"], FixedDelayRestartStrategy()),
        (["restart-strategy.type=failurerate"], FailureRateRestartStrategy()),
        (
            [
                "restart-strategy.type=fixeddelay",
                "restart-strategy.fixed-delay.attempts=4",
                "restart-strategy.fixed-delay.delay=250 ms",
            ],
            FixedDelayRestartStrategy(attempts=4, delay_seconds=0.25),
        ),
        (
            [
                "restart-strategy.type=failure-rate",
                "restart-strategy.failure-rate.max-failures-per-interval=5",
                "restart-strategy.failure-rate.failure-rate-interval=2 min",
                "restart-strategy.failure-rate.delay=0 s",
            ],
            FailureRateRestartStrategy(
                max_failures_per_interval=5, failure_rate_interval_seconds=120.0, delay_seconds=0.0
            ),
        ),
        (
            [
                "restart-strategy.type=exponential-delay",
                f"{EXPONENTIAL}initial-backoff=2 s",
                f"{EXPONENTIAL}max-backoff=1 h",
                f"{EXPONENTIAL}backoff-multiplier=3",
                f"{EXPONENTIAL}reset-backoff-threshold=1 d",
                f"{EXPONENTIAL}jitter-factor=0.5",
                f"{EXPONENTIAL}attempts-before-reset-backoff=9",
            ],
            ExponentialDelayRestartStrategy(
                initial_backoff_seconds=2.0,
                max_backoff_seconds=3600.0,
                backoff_multiplier=3.0,
                reset_backoff_threshold_seconds=86400.0,
                jitter_factor=0.5,
                attempts_before_reset_backoff=9,
            ),
        ),
    ],
)
def test_strategies_of_the_cluster(options: list[str], expected: RestartStrategy) -> None:
    assert restart_strategy(load(None, environment={}, dynamic=options)) == expected


def test_what_is_remembered_and_what_restarts() -> None:
    default = settings()
    assert default == replace(FailoverSettings(), enrich=default.enrich)
    given = settings(
        "jobmanager.execution.failover-strategy=full",
        "web.exception-history-size=3",
        "jobmanager.execution.attempts-history-size=0",
    )
    assert (given.is_full, given.exceptions_max, given.prior_attempts_max) == (True, 3, 0)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("restart-strategy.type=sometimes", "expected one of none, fixed-delay, failure-rate, exponential-delay"),
        (f"{EXPONENTIAL}jitter-factor=2", "expected a number between 0 and 1"),
        (f"{EXPONENTIAL}backoff-multiplier=half", "expected a number between 1 and 1000"),
        (f"{EXPONENTIAL}max-backoff=1 ms", "must not be below"),
        ("jobmanager.execution.failover-strategy=half", "expected one of region, full"),
        ("jobmanager.failure-enrichers=type,guess", "no failure enricher guess: known are type"),
    ],
)
def test_other_values_stop_the_process_at_its_start(option: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        settings(option)

"""Options that a job may set for itself, over those of the cluster: what Flink reads from a job's configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Any

from runtime.common.checkpoint_settings import CheckpointRetention, CheckpointSettings
from runtime.common.states import JobType
from runtime.config.configuration import Configuration
from runtime.config.foreign import advice_for
from runtime.config.option import ConfigOption, choice_option
from runtime.config.options.adaptive_batch import (
    AUTO_PARALLELISM_ENABLED,
    BYTES_PER_TASK,
    PARALLELISM_DEFAULT,
    PARALLELISM_MAX,
    PARALLELISM_MIN,
    SKEW_FACTOR,
)
from runtime.config.options.checkpointing import (
    CHECKPOINT_INTERVAL,
    CHECKPOINT_MIN_PAUSE,
    CHECKPOINT_RETENTION,
    CHECKPOINT_TIMEOUT,
    CHECKPOINT_TOLERABLE_FAILURES,
    CHECKPOINTS_RETAINED,
)
from runtime.config.options.speculation import (
    SLOW_BASELINE_LOWER_BOUND,
    SLOW_BASELINE_MULTIPLIER,
    SLOW_BASELINE_RATIO,
    SLOW_CHECK_INTERVAL,
    SPECULATIVE_BLOCK,
    SPECULATIVE_CONCURRENT_MAX,
    SPECULATIVE_ENABLED,
)

RUNTIME_MODE = choice_option(
    "execution.runtime-mode",
    "AUTOMATIC",
    "Of one job: what it has to be. AUTOMATIC: a query that does not end makes it a streaming job.",
    "AUTOMATIC",
    "BATCH",
    "STREAMING",
)
_OF_SPECULATION = (
    SPECULATIVE_CONCURRENT_MAX,
    SPECULATIVE_BLOCK,
    SLOW_CHECK_INTERVAL,
    SLOW_BASELINE_RATIO,
    SLOW_BASELINE_MULTIPLIER,
    SLOW_BASELINE_LOWER_BOUND,
)
_OPTIONS: Mapping[str, ConfigOption[Any]] = {
    option.key: option
    for option in (
        RUNTIME_MODE,
        CHECKPOINT_INTERVAL,
        CHECKPOINT_TIMEOUT,
        CHECKPOINT_MIN_PAUSE,
        CHECKPOINT_TOLERABLE_FAILURES,
        CHECKPOINTS_RETAINED,
        CHECKPOINT_RETENTION,
        AUTO_PARALLELISM_ENABLED,
        PARALLELISM_MIN,
        PARALLELISM_MAX,
        BYTES_PER_TASK,
        PARALLELISM_DEFAULT,
        SKEW_FACTOR,
        SPECULATIVE_ENABLED,
        *_OF_SPECULATION,
    )
}
_OF_CHOICES = (PARALLELISM_MIN, PARALLELISM_MAX, BYTES_PER_TASK, SKEW_FACTOR)
_SHOWN_MAX = 80
_ALIKE = 0.9
"""Of 1: so alike are a key and the one that was mistyped."""


def job_configuration_problems(given: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with a job's configuration, one sentence each."""
    if len(given) > len(_OPTIONS):
        given = dict(islice(given.items(), len(_OPTIONS) + 1))  # one of them at least is unknown
    for key, text in given.items():
        option = _OPTIONS.get(key)
        if option is None and (meant := get_close_matches(key[:_SHOWN_MAX], _OPTIONS, n=1, cutoff=_ALIKE)):
            yield f"configuration: {key[:_SHOWN_MAX]!r} is no option, did you mean {meant[0]!r}?"
            continue
        if option is None and not _is_of_cluster(key):
            yield f"configuration: {key[:_SHOWN_MAX]!r} {_unknown(key[:_SHOWN_MAX])}"
            continue
        if option is None:
            known = ", ".join(sorted(_OPTIONS))
            yield f"configuration: {key[:_SHOWN_MAX]!r} is the cluster's, not a job's; a job may set {known}"
            continue
        try:
            option.parse(text)
        except ValueError as error:
            yield f"configuration: {key}: {text[:_SHOWN_MAX]!r} is not valid: {error}"


def runtime_mode_problem(given: Mapping[str, str], job_type: JobType) -> str:
    """Why a job is not what its `execution.runtime-mode` says, "" if it is. For a configuration without problems."""
    mode = RUNTIME_MODE.parse(given.get(RUNTIME_MODE.key, RUNTIME_MODE.default))
    if mode in {"AUTOMATIC", job_type.value}:
        return ""
    if job_type is JobType.STREAMING:
        return (
            f"configuration: {RUNTIME_MODE.key} is BATCH, and a query of the job does not end: leave it out, or give "
            "the stream_sink the trigger availableNow"
        )
    return f"configuration: {RUNTIME_MODE.key} is STREAMING, and each query of the job ends: leave it out"


def asks_for_speculation(given: Mapping[str, str]) -> bool:
    """True if the job itself asks for speculative execution. For a configuration without problems."""
    text = given.get(SPECULATIVE_ENABLED.key)
    return text is not None and SPECULATIVE_ENABLED.parse(text)


def idle_speculation_options(given: Mapping[str, str], *, is_cluster_enabled: bool) -> list[str]:
    """Options about slow tasks that a job gives, while it has none run a second time."""
    if asks_for_speculation(given) or (is_cluster_enabled and SPECULATIVE_ENABLED.key not in given):
        return []
    return [option.key for option in _OF_SPECULATION if option.key in given]


def idle_parallelism_options(given: Mapping[str, str], *, is_cluster_enabled: bool) -> list[str]:
    """Options about parallelism that a job gives, and that decide nothing: those about what the cluster chooses where
    it chooses nothing, and what holds in place of that where it does. For a configuration without problems.
    """
    text = given.get(AUTO_PARALLELISM_ENABLED.key)
    is_enabled = is_cluster_enabled if text is None else AUTO_PARALLELISM_ENABLED.parse(text)
    return [option.key for option in ((PARALLELISM_DEFAULT,) if is_enabled else _OF_CHOICES) if option.key in given]


def parallelism_options(given: Mapping[str, str]) -> list[str]:
    """Options that a job gives for vertices without a parallelism of their own."""
    every = (AUTO_PARALLELISM_ENABLED, *_OF_CHOICES, PARALLELISM_DEFAULT)
    return [option.key for option in every if option.key in given]


def _unknown(key: str) -> str:
    if key.startswith("spark."):
        return "is Spark's: give it as Spark conf, by --conf of a script or spark_conf of a Pipeline"
    advice = advice_for(key)
    return f"is Flink's, but not available here: {advice}" if advice else "is no option"


def _is_of_cluster(key: str) -> bool:
    from runtime.config import profile_options, queue_options  # noqa: PLC0415
    from runtime.config.catalog import all_options  # noqa: PLC0415 - for a mistake only: it loads all options

    return key in all_options() or key.startswith((queue_options.PREFIX, profile_options.PREFIX))


def job_value(cluster: Configuration, job: Mapping[str, str], option: ConfigOption[Any]) -> Any:
    """What holds for a job whose configuration has no problems: its own value, else that of the cluster."""
    text = job.get(option.key)
    return cluster.get(option) if text is None else option.parse(text)


def checkpoint_settings(cluster: Configuration, job: Mapping[str, str]) -> CheckpointSettings:
    """Those of a job whose configuration has no problems."""
    value = partial(job_value, cluster, job)
    return CheckpointSettings(
        interval=value(CHECKPOINT_INTERVAL).total_seconds(),
        timeout=value(CHECKPOINT_TIMEOUT).total_seconds(),
        min_pause=value(CHECKPOINT_MIN_PAUSE).total_seconds(),
        tolerable_failures=value(CHECKPOINT_TOLERABLE_FAILURES),
        retained=value(CHECKPOINTS_RETAINED),
        retention=CheckpointRetention(value(CHECKPOINT_RETENTION)),
    )

"""Options of the scheduler of streaming jobs whose parallelism follows the slots that there are; names are Flink's."""

from __future__ import annotations

from datetime import timedelta

from runtime.config.option import ConfigOption, choice_option, duration_option, int_option, parse_duration


def parse_wait(text: str) -> timedelta:
    """A duration; -1 waits without an end."""
    if text.strip() in {"-1", "-1 ms"}:
        return FOR_EVER
    return parse_duration(text)


FOR_EVER = timedelta(milliseconds=-1)
"""What -1 stands for."""


SCHEDULER_MODE = choice_option(
    "scheduler-mode",
    "none",
    "reactive: streaming jobs have the AdaptiveScheduler, whatever jobmanager.scheduler says, and take all slots that "
    "their splits can use. Slots are not waited for then: both stabilization timeouts are 0 s unless they are set, "
    "and the wait timeout has no end. Flink has it for clusters of one job only; here jobs may share the slots.",
    "none",
    "reactive",
)
RESOURCE_WAIT_TIMEOUT = ConfigOption(
    "jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
    parse_wait,
    timedelta(minutes=5),
    "How long a job of the AdaptiveScheduler waits for the slots that it needs at least, until it fails; -1: without "
    "an end.",
    "Duration",
    "5 min",
)
SUBMISSION_STABILIZATION = duration_option(
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
    "10 s",
    "How long a job that has the slots that it needs at least waits for more, before it begins; and how long it waits "
    "for others in place of those that are gone, before it goes on with fewer.",
    low="0 ms",
)
COOLDOWN = duration_option(
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
    "30 s",
    "The least time from the begin of a job, or its last rescale, to a rescale that nothing forces.",
    low="0 ms",
)
EXECUTING_STABILIZATION = duration_option(
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout",
    "1 min",
    "How long a job that could use more slots waits for still more of them, behind the cooldown; with all that it can "
    "use it does not wait.",
    low="0 ms",
)
RESCALE_HISTORY_SIZE = int_option(
    "web.adaptive-scheduler.rescale-history.size",
    16,
    "Rescales of a job that are kept. Flink keeps none without it.",
    low=1,
    high=1000,
)

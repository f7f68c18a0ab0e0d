"""Options of the SlotManager: queues. Those of one queue are in `runtime.config.queue_options`."""

from __future__ import annotations

from runtime.config.option import bool_option, duration_option, int_option

QUEUES_OPEN = bool_option(
    "slotmanager.queues.open",
    "A queue comes into being, with weight 1, when a job names it. With false there are the queues that have options, "
    "and `default`: a job that names another one is refused.",
    default=True,
)
QUEUES_MAX_COUNT = int_option(
    "slotmanager.queues.max-count",
    1000,
    "Queues that may have unfinished jobs at once; above it a submit into one more is refused with 429.",
    high=100_000,
)
PREEMPTION = bool_option(
    "slotmanager.preemption",
    "Tasks of queues that hold more than their share end, and run again later, when another queue waits with less than "
    "its share for `slotmanager.preemption.timeout`. Exclusive tasks (scripts, lone functions, sinks, streams) are not "
    "ended. Without it a queue waits for the next task that ends.",
    default=False,
)
PREEMPTION_TIMEOUT = duration_option(
    "slotmanager.preemption.timeout",
    "10 s",
    "How long a queue waits with less than its share before slots of others are taken. With `slotmanager.preemption`.",
    low="0 ms",
)

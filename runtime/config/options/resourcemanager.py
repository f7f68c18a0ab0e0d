"""Options of the ResourceManager: what starts TaskManagers, how many, and when they go."""

from __future__ import annotations

from runtime.config.option import (
    ConfigOption,
    choice_option,
    duration_option,
    float_option,
    int_between,
    int_option,
)

DRIVER = choice_option(
    "resourcemanager.driver",
    "standalone",
    "What starts TaskManagers. standalone: conf/workers and bin/taskmanager.sh. With the others the leading JobManager "
    "starts them when jobs wait for slots, and releases those that are idle. process: on its own host. docker: as "
    "containers. ssh: on the hosts of conf/workers.",
    "standalone",
    "process",
    "docker",
    "ssh",
)
SLOTS_MIN = int_option(
    "slotmanager.number-of-slots.min",
    0,
    "Slots that are kept, without jobs too. With a driver.",
    low=0,
    high=100_000,
)
SLOTS_MAX: ConfigOption[int | None] = ConfigOption(
    "slotmanager.number-of-slots.max",
    int_between(1, 100_000),
    None,
    "Slots of all TaskManagers together, above which a driver starts none. Flink has no bound here; the host of the "
    "JobManager has one.",
    "Integer",
    "with ssh those of all lines of conf/workers; else twice the cores of the JobManager's host, or one TaskManager",
)
REDUNDANT = int_option(
    "slotmanager.redundant-taskmanager-num",
    0,
    "TaskManagers that a driver keeps free for the next jobs.",
    low=0,
    high=10_000,
)
IDLE_TIMEOUT = duration_option(
    "resourcemanager.taskmanager-timeout",
    "30 s",
    "A TaskManager of a driver without an allocated slot for this long is released: it drains, and ends.",
    low="1 s",
)
REGISTRATION_TIMEOUT = duration_option(
    "resourcemanager.taskmanager-registration.timeout",
    "5 min",
    "A TaskManager of a driver that has given no slots for this long is ended; so is a JobMaster process that has not "
    "registered.",
    low="1 s",
)
START_FAILURES_MAX = float_option(
    "resourcemanager.start-worker.max-failure-rate",
    10.0,
    "TaskManagers that may fail to start within a minute before a driver pauses; the same of JobMaster processes.",
    low=0.0,
    high=10_000.0,
)
START_RETRY_INTERVAL = duration_option("resourcemanager.start-worker.retry-interval", "3 s", "That pause.", low="0 ms")
RECOVERY_TIMEOUT = duration_option(
    "resourcemanager.previous-worker.recovery.timeout",
    "3 s",
    "A new leader has a driver start none for this long: what served the last leader registers meanwhile.",
    low="0 ms",
)

"""Settings of a Dispatcher, as plain values. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.dispatcher.core.client_promises import GRACE_SECONDS
from runtime.dispatcher.core.jobs import DEFAULT_MOVES
from runtime.dispatcher.core.planned_moves import MoveSettings
from runtime.dispatcher.core.retention import Retention
from runtime.dispatcher.core.submits import JobRegistryLimits


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """`shown` bounds the finished jobs that are listed, `remembered` the ids that are known to be taken.

    Jobs with a result are cleaned when there are `clean_jobs_min`, at the latest every `clean_period`. Their archives
    share objects of up to `pack_bytes_max`. `client_grace`: how long clients that have promised to be back may look for
    a new leader.
    """

    limits: JobRegistryLimits
    shown: Retention
    remembered: Retention
    heartbeat_interval: float
    heartbeat_timeout: float
    rpc_timeout: float
    moves: MoveSettings = DEFAULT_MOVES
    client_grace: float = GRACE_SECONDS
    tick_period: float = 1.0
    clean_period: float = 5.0
    clean_jobs_min: int = 100
    clean_jobs_max: int = 500
    pack_bytes_max: int = 8 * 1024 * 1024
    forget_period: float = 60.0

"""Sessions in the shared JVM, as the TaskManager, the Spark host and slot processes tell each other of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from runtime.common.stream_progress import StreamProgress


class SessionRest(Enum):
    """A session after an attempt. ACTIVE: a Spark job of it runs. CHANGED: so is what all jobs share in the JVM."""

    QUIET = ""
    ACTIVE = "active"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class SlotSession:
    """One pre-made py4j gateway, Spark session and job tag in the shared JVM, for one slot process.

    `session_id` is also Spark's job tag. `directory` is for the temporary files of the session's Python side;
    it is made by `open_session` and removed by `close_session`. `conf` is what the JVM was started with.
    `is_of_one_job`: no other job has that JVM.

    For a Java application there is no JVM yet: the slot process starts it with `command`, which lacks the class path's
    end, and `environment`, and gives it `conf` (`slot_process.application`).

    `remote`: the address of the session at a Spark Connect server, whose token is `secret`; "" for one in a JVM here.
    """

    session_id: str
    port: int
    secret: str
    pool: str
    directory: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    is_of_one_job: bool = False
    remote: str = ""


@dataclass(frozen=True, slots=True)
class SparkProgress:
    """What the active Spark jobs of one session are doing (sums over its active stages), and its streaming queries."""

    jobs_active: int = 0
    stages_active: int = 0
    tasks_active: int = 0
    tasks_completed: int = 0
    tasks_failed: int = 0
    tasks_total: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    read_records: int = 0
    write_records: int = 0
    cpu_millis: int = 0
    streams: tuple[StreamProgress, ...] = ()

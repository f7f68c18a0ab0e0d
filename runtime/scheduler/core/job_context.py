"""What the parts of a job's owner share: one job under one epoch."""

from __future__ import annotations

from runtime.common.checkpoint_settings import NO_CHECKPOINTS, CheckpointSettings
from runtime.common.states import SchedulerType
from runtime.executiongraph.core.failures import FailureHistory
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.scheduler.core.adaptive.settings import DEFAULT_ADAPTIVE_SCHEDULER, AdaptiveSchedulerSettings
from runtime.scheduler.core.effects import Effect
from runtime.scheduler.core.events import Moment
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.scheduler.core.parallelism.settings import AdaptiveOf, default_adaptive
from runtime.scheduler.core.task_managers.fencing import Fences
from runtime.scheduler.core.task_managers.outbox import Outbox


class JobContext:
    """The JobMaster owns it; the scheduler reads and writes through it while it handles an event.

    `at`: when the event of this turn was noticed. `effects`: what this turn brings about, in order. `changes`: how many
    attempts have changed their state since the job's summary was published last.
    """

    __slots__ = (
        "adaptive",
        "adaptive_of",
        "at",
        "changes",
        "checkpointing",
        "effects",
        "failures",
        "fences",
        "graph",
        "outbox",
        "scheduler_type",
        "settings",
    )

    def __init__(
        self,
        graph: ExecutionGraph,
        settings: FailoverSettings,
        at: Moment,
        checkpointing: CheckpointSettings = NO_CHECKPOINTS,
        *,
        scheduler_type: SchedulerType = SchedulerType.ADAPTIVE_BATCH,
        adaptive_of: AdaptiveOf = default_adaptive,
        adaptive: AdaptiveSchedulerSettings = DEFAULT_ADAPTIVE_SCHEDULER,
    ) -> None:
        """`adaptive_of`: bounds of what is chosen for a batch; `adaptive`: what bounds rescales of a streaming job."""
        self.graph = graph
        self.settings = settings
        self.checkpointing = checkpointing
        self.scheduler_type = scheduler_type
        self.adaptive_of = adaptive_of
        self.adaptive = adaptive
        self.outbox = Outbox(graph.job_id, graph.epoch)
        self.failures = FailureHistory(graph, settings.exceptions_max, settings.enrich)
        self.fences = Fences(settings.unconfirmed_wait)
        self.effects: list[Effect] = []
        self.changes = 0
        self.at = at

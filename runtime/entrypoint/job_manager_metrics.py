"""What the metrics of a JobManager read at a scrape, and whom Prometheus is to scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from runtime.common.clock import Clock
from runtime.common.shares import DEFAULT_QUEUE, QueueStatus
from runtime.common.states import JobStatus
from runtime.dispatcher.core.waiting_kinds import waiting_kind
from runtime.gateways.dispatcher import JobSummary
from runtime.gateways.overview import DispatcherView, ResourceManagerView
from runtime.highavailability.leadership.retrieval import LeaderRetrieval
from runtime.metrics import table
from runtime.metrics.registry import Sample
from runtime.metrics.reporting import Exposition, Reporting
from runtime.rest.context import LeaderComponents, MetricsTarget

_OTHER_QUEUES = "-"


class JobManagerMetrics:
    """Implements `MetricsView` of REST; its `read` is a reader."""

    def __init__(
        self,
        reporting: Reporting,
        leader: Callable[[], LeaderComponents | None],
        retrieval: LeaderRetrieval,
        clock: Clock,
    ) -> None:
        self._exposition = reporting.exposition
        self._leader = leader
        self._retrieval = retrieval
        self._clock = clock
        reporting.registry.read("jobmanager", self.read)

    # --- REST -----------------------------------------------------------------------------------------------------

    @property
    def exposition(self) -> Exposition | None:
        """The metrics of this JobManager, None without Prometheus."""
        return self._exposition

    def targets(self, components: LeaderComponents) -> Sequence[MetricsTarget]:
        """Every process of the cluster that serves metrics, by address."""
        found = [
            *(MetricsTarget("jobmanager", one.incarnation, one.metrics_address) for one in self._retrieval.candidates),
            *(
                MetricsTarget("jobmaster", one.incarnation, one.metrics_address)
                for one in components.dispatcher.job_masters()
            ),
            *(
                MetricsTarget("taskmanager", one.task_manager_id, one.metrics_address)
                for one in (info.registration for info in components.resource_manager.task_managers())
            ),
        ]
        return sorted((one for one in found if one.address), key=lambda one: (one.process, one.address))

    # --- at a scrape ----------------------------------------------------------------------------------------------

    def read(self) -> Iterator[Sample]:
        """The state of the cluster, as far as this process knows it."""
        components = self._leader()
        yield Sample(table.IS_LEADER, components is not None)
        yield Sample(table.LEADER_CHANGES, self._retrieval.leader.generation)
        if components is not None:
            yield from _jobs(components.dispatcher, self._clock.epoch_millis())
            yield from _processes(components.dispatcher, components.resource_manager)


def _jobs(dispatcher: DispatcherView, now_millis: int) -> Iterator[Sample]:
    counts = dispatcher.job_counts()
    yield from (Sample(table.JOBS, counts.get(status, 0), (status.value,)) for status in JobStatus)
    yield from waiting_samples(dispatcher.job_summaries(), now_millis)


def waiting_samples(jobs: Iterable[JobSummary], now_millis: int) -> Iterator[Sample]:
    """How many wait for what, and how long the longest of them."""
    count: Counter[str] = Counter()
    longest: dict[str, int] = {}
    for job in jobs:
        if kind := waiting_kind(job):
            count[kind] += 1
            longest[kind] = max(longest.get(kind, 0), now_millis - job.last_modification_millis)
    for kind in table.WAITING_REASONS:
        yield Sample(table.JOBS_WAITING, count[kind], (kind,))
        yield Sample(table.LONGEST_WAIT, max(0, longest.get(kind, 0)) / 1000, (kind,))


def queue_samples(queues: Iterable[QueueStatus]) -> Iterator[Sample]:
    """The shares of queues that an operator has named. Those that are called after people are told together."""
    found = {DEFAULT_QUEUE: [0.0, 0.0, 0.0], _OTHER_QUEUES: [0.0, 0.0, 0.0]}
    for one in queues:
        name = one.name if one.is_named or one.name == DEFAULT_QUEUE else _OTHER_QUEUES
        sums = found.setdefault(name, [0.0, 0.0, 0.0])
        for number, figure in enumerate((one.held, one.share, one.waiting_jobs)):
            sums[number] += figure
    for name, (held, share, waiting) in found.items():
        yield Sample(table.QUEUE_SLOTS, held, (name,))
        yield Sample(table.QUEUE_SHARE, share, (name,))
        yield Sample(table.QUEUE_WAITING, waiting, (name,))


def _processes(dispatcher: DispatcherView, resource_manager: ResourceManagerView) -> Iterator[Sample]:
    slots, free = resource_manager.slot_counts()
    yield Sample(table.TASK_SLOTS, slots)
    yield Sample(table.FREE_SLOTS, free)
    yield from queue_samples(resource_manager.queues())
    yield Sample(table.TASK_MANAGERS, len(resource_manager.task_managers()))
    states = Counter(one.state for one in dispatcher.job_masters())
    for state in ("ready", "draining", "disconnected"):
        yield Sample(table.JOB_MASTER_PROCESSES, states[state], (state,))

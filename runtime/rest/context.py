"""What handlers use: the leading components of this process, or the reason why there are none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtime.aio.entropy import SystemEntropy
from runtime.aio.watch import Watch
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import UnavailableError
from runtime.common.ids import JobId
from runtime.common.shares import QueuePolicy
from runtime.gateways.blob import BlobKey
from runtime.gateways.cluster_events import NO_EVENTS, ClusterEvents
from runtime.gateways.operations import SavepointDisposal
from runtime.gateways.overview import DispatcherView, ResourceManagerView
from runtime.gateways.process import ProcessGateway
from runtime.gateways.task_executor import TaskExecutorGateway
from runtime.highavailability.jars import StoredJar
from runtime.highavailability.kv.key_value_store import StoreMember, StoreStatus
from runtime.highavailability.records import JarRecord
from runtime.metrics.reporting import Exposition
from runtime.rest.access.audit import Audit, NoAudit
from runtime.rest.access.page_cookie import PageCookie
from runtime.rest.access.principal_limits import NO_LIMITS, LimitSettings
from runtime.rest.access.principals import PrincipalAdministration
from runtime.rest.connections.tls import RestTls
from runtime.rest.forwarding.forward_seal import ForwardSeal
from runtime.rest.spark_ui.desk import SparkUi
from runtime.traces.span import without_trace

LEADER_UNKNOWN = "Service temporarily unavailable due to an ongoing leader election. Please refresh."


class BlobEndpoint(Protocol):
    """The BlobServer, as REST uses it."""

    async def missing(self, digests: Sequence[tuple[str, int]], /) -> tuple[dict[str, BlobKey], Sequence[str]]:
        """(sha256, size) pairs -> keys of those that may be referenced (R19), digests that must be uploaded."""

    async def upload(self, sha256: str | None, chunks: AsyncIterator[bytes], /) -> BlobKey:
        """Store and verify (None: any digest). InvalidInputError for another one, MessageTooLargeError if too large."""

    def download(self, key: BlobKey, /) -> AsyncIterator[bytes]:
        """The object's bytes. NotFoundError."""

    async def read_range(self, key: str, /, *, offset: int, size_bytes: int) -> bytes:
        """A piece of an object, shorter at its end. NotFoundError."""


class DisposalEndpoint(Protocol):
    """Savepoints that are to be deleted (R62), as REST uses them."""

    async def request(self, disposal: SavepointDisposal, /) -> SavepointDisposal:
        """Store a wish; idempotent by its trigger id. ConflictError where too many are in progress."""

    async def find(self, trigger_id: str, /) -> SavepointDisposal | None:
        """What has become of one."""


class JarEndpoint(Protocol):
    """The records of uploaded programs (R54), as REST uses them."""

    async def add(self, record: JarRecord, /, *, jars_max: int) -> None:
        """Store a new record. ConflictError where there are so many."""

    async def check_room(self, jars_max: int, /) -> None:
        """ConflictError where there are so many."""

    async def get(self, jar_id: str, /) -> StoredJar | None:
        """One of them."""

    async def all(self) -> Sequence[StoredJar]:
        """All of them."""

    async def delete(self, jar_id: str, /) -> None:
        """Forget one. Idempotent."""


@dataclass(frozen=True, slots=True)
class LeaderComponents:
    """What exists only while this process leads."""

    dispatcher: DispatcherView
    resource_manager: ResourceManagerView
    blobs: BlobEndpoint
    jars: JarEndpoint
    rest_address: str
    """Where clients reach this process."""
    events: ClusterEvents = NO_EVENTS
    disposals: DisposalEndpoint | None = None
    """None in a history server, which deletes nothing."""


@dataclass(frozen=True, slots=True)
class MetricsTarget:
    """A process that serves metrics: its kind, its id, and host:port."""

    process: str
    id: str
    address: str


class MetricsView(Protocol):
    """Metrics, as REST tells them."""

    @property
    def exposition(self) -> Exposition | None:
        """Those of this process, None without Prometheus."""

    def targets(self, components: LeaderComponents, /) -> Sequence[MetricsTarget]:
        """Every process of the cluster that serves metrics."""


class StoreView(Protocol):
    """The store of the cluster, as its leader sees it."""

    @property
    def kind(self) -> str:
        """`high-availability.type`."""

    @property
    def status(self) -> StoreStatus | None:
        """As of its last answer, None before; it is asked every ten seconds."""

    @property
    def looked_millis(self) -> int:
        """When that was, since 1970; 0 before."""

    async def members(self) -> Sequence[StoreMember]:
        """Its endpoints, asked now."""


class HistoryView(Protocol):
    """Whose history a history server shows."""

    def cluster(self, job_id: JobId, /) -> str:
        """The id of the cluster that has run a job; "" for an unknown one."""


@dataclass(frozen=True, slots=True)
class RestContext:
    """Handed to every router. `task_executor` connects to a TaskManager by address, `process` to any process.

    `own_process` is this one.
    `other_leader`: REST address of the JobManager that leads when it is another process, "" otherwise.
    """

    leader: Callable[[], LeaderComponents | None]
    other_leader: Watch[str]
    task_executor: Callable[[str], TaskExecutorGateway]
    process: Callable[[str], ProcessGateway]
    own_process: ProcessGateway
    clock: Clock
    configuration: Sequence[tuple[str, str]]
    long_poll_max: float
    refresh_interval_millis: int
    entropy: Entropy = field(default_factory=SystemEntropy)
    principals: PrincipalAdministration | None = None
    """None without authentication."""
    audit: Audit = field(default_factory=NoAudit)
    limits: LimitSettings = NO_LIMITS
    forward_seal: ForwardSeal | None = None
    """None where there are no stand-bys."""
    page_cookie: PageCookie | None = None
    """None where no browser signs in."""
    frame_ancestors: tuple[str, ...] = ()
    """Origins whose pages may show the dashboard in a frame."""
    tls: RestTls | None = None
    """None where REST is in plain text, here and at the leader."""
    queues: QueuePolicy = field(default_factory=QueuePolicy)
    driver: str = "standalone"
    """What starts processes (`resourcemanager.driver`)."""
    metrics: MetricsView | None = None
    """None without a reporter."""
    history: HistoryView | None = None
    """None in a JobManager. A history server has a leader that shows what has ended, and no route that changes it."""
    spark_ui: SparkUi | None = None
    """None where nobody sees Spark's own pages (R58)."""
    new_trace: Callable[[str, str], str] = without_trace
    """The context of the trace of a job that is submitted, from its id and the header `traceparent` of its submit."""
    rpc_timeout: float = 10.0
    """Seconds within which other processes have to answer. A history server has none."""
    savepoint_directory: str = ""
    """Where savepoints are made whose request names no directory; "" for none."""
    runs_by_split: bool = False
    """Streaming jobs that come now have the AdaptiveScheduler (R68)."""
    stream_stall_millis: int = 600_000
    """In one trigger for longer, a streaming query is stalled."""
    store: StoreView | None = None
    """None in a history server."""
    speculates: bool = False
    """Slow tasks of jobs that do not say otherwise run a second time (R67)."""
    scheduler: str = "AdaptiveBatch"
    """`jobmanager.scheduler` of the cluster."""
    chooses_parallelism: bool = True
    """Jobs that do not say otherwise have the parallelism of their vertices chosen, where the scheduler can."""
    stand_bys: Callable[[], Sequence[str]] = tuple
    """REST addresses of the JobManagers that stand by."""

    @property
    def components(self) -> LeaderComponents:
        """The leading components. Raises UnavailableError (503) while there is no leader here."""
        leading = self.leader()
        if leading is None:
            raise UnavailableError(LEADER_UNKNOWN)
        return leading

    @property
    def dispatcher(self) -> DispatcherView:
        """The leading Dispatcher."""
        return self.components.dispatcher

"""What a Dispatcher needs from outside for one term. Built by the entry point; nothing here outlives the term."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation, JobId
from runtime.dispatcher.dispatcher_metrics import DispatcherMetrics
from runtime.dispatcher.dispatcher_traces import DispatcherTraces
from runtime.gateways.cluster_events import NO_EVENTS, ClusterEvents
from runtime.gateways.resource_manager import JobRequirements
from runtime.highavailability.disposals import DisposalStore
from runtime.highavailability.jobs.job_store import LeaderJobStore
from runtime.highavailability.records import Payload
from runtime.history.pack import EndedJob


@dataclass(frozen=True, slots=True)
class ArchivePointer:
    """Where the archive of a cleaned job lies: a part of an immutable object."""

    key: str
    offset: int
    size_bytes: int
    sha256: str


class ArchivePacks(Protocol):
    """Archives of finished jobs, many in one object."""

    async def pack(self, archives: Sequence[bytes], /) -> Sequence[ArchivePointer]:
        """Write all archives into one object, synced (R20). Returns their pointers in the same order."""

    async def unpack(self, pointer: ArchivePointer, /) -> bytes:
        """Read one archive. Raises NotFoundError when retention has removed it."""


class PayloadStore(Protocol):
    """Bytes of records: `runtime.highavailability.jobs.payloads.Payloads`."""

    async def store(self, data: bytes, /) -> Payload:
        """Store the bytes. Returns the payload, which a record may refer to from now on."""

    async def spill(self, payload: Payload, /) -> Payload:
        """The same payload, moved out of line if it is too large. Idempotent."""

    async def load(self, payload: Payload, /) -> bytes:
        """Read the bytes of a payload."""


class JobHistory(Protocol):
    """What outlives the memory of the cluster: `runtime.history.writer.HistoryWriter` (D-115)."""

    async def write(self, jobs: Sequence[EndedJob], /) -> None:
        """Write ended jobs. Never raises: what cannot be written is logged."""


class NoHistory:
    """Implements `JobHistory` where none is kept."""

    async def write(self, jobs: Sequence[EndedJob], /) -> None:
        """No effect."""


class BlobReferences(Protocol):
    """Which blobs a submit may refer to (R19): `runtime.blob.store.BlobStore`."""

    async def not_referable(self, keys: Sequence[str], /) -> Sequence[str]:
        """Those of `keys` that a new job may not refer to."""


class ResourceRequests(Protocol):
    """The ResourceManager of the same term, as the Dispatcher uses it."""

    def declare_requirements(self, requirements: JobRequirements, /) -> None:
        """The complete requirement set of a job changed."""

    def end_jobs(self, jobs: Mapping[JobId, bool], /) -> None:
        """These jobs have a stored result (R16), and whether their outputs are kept (R28)."""


class TaskStops(Protocol):
    """Stops the tasks of a job that no process runs (R16), as `LeaderFences` of highavailability does."""

    async def stop_everywhere(self, job_id: JobId, epoch: int, last_epoch: int, /) -> None:
        """Stop them. Returns when no exclusive attempt of epochs up to `last_epoch` can run any more.

        Returns also when the owner that is stored for the job is not that of `epoch` (0: none).
        """


def without_audit(job_id: JobId, reason: str) -> None:
    """Stands for the audit log where there is none."""


def unsettled(graph: bytes) -> CheckpointSettings | None:
    """Stands for the cluster's configuration where there is none: owners have their own."""


@dataclass(frozen=True, slots=True)
class DispatcherServices:
    """`token` is the term; `incarnation` and `address` are those of this process.

    `stops` is None where nothing is durable, so that no TaskManager could read a fence. `tell_cancel` is called with
    each job that the cluster cancels, and the reason, when the cancel is durable (R49). `checkpointing`: what holds for
    a graph that is submitted, from its JSON; None for a job without streaming queries. `disposals`: savepoints that are
    to be deleted (R62), None where none are.
    """

    store: LeaderJobStore
    payloads: PayloadStore
    archives: ArchivePacks
    blobs: BlobReferences
    clock: Clock
    entropy: Entropy
    token: FencingToken
    incarnation: Incarnation
    address: str
    stops: TaskStops | None
    tell_cancel: Callable[[JobId, str], None] = without_audit
    history: JobHistory = field(default_factory=NoHistory)
    metrics: DispatcherMetrics = field(default_factory=DispatcherMetrics)
    events: ClusterEvents = NO_EVENTS
    checkpointing: Callable[[bytes], CheckpointSettings | None] = unsettled
    disposals: DisposalStore | None = None
    traces: DispatcherTraces = field(default_factory=DispatcherTraces)

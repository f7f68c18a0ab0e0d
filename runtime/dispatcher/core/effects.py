"""The effects of a Dispatcher (imperatives): its core decides them on an event, its shell executes them."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.errors import FlinklikeError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core.events import JobSource
from runtime.gateways.dispatcher import AssignJob, JobInventoryEntry, JobSummary, SubmitOutcome
from runtime.gateways.overview import Takeover


@dataclass(frozen=True, slots=True)
class StoreJob:
    """Run the submit transaction, with an owner unless `incarnation` is ""."""

    source: JobSource
    incarnation: Incarnation
    address: str


@dataclass(frozen=True, slots=True)
class StoreOwner:
    """Run the assign transaction, after a pause that grows with `refusals` (R5).

    `takeovers`: those of the job; the last one is this one, if its time is 0.
    """

    job_id: JobId
    incarnation: Incarnation
    address: str
    previous_epoch: int
    takeovers: tuple[Takeover, ...] = ()
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class StoreWanted:
    """Run the want transaction for a cancel. `reason`: why the cluster wants it, "" if a client does."""

    job_id: JobId
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StorePromise:
    """Run the promise transaction: the job's client will be back by then."""

    job_id: JobId
    expires_millis: int


@dataclass(frozen=True, slots=True)
class StoreMoveWish:
    """Run the want transaction for a move to `target`. It counts under the owner of `epoch` only."""

    job_id: JobId
    target: Incarnation
    epoch: int


@dataclass(frozen=True, slots=True)
class StoreEnd:
    """Run the transaction `end without owner`: CANCELED, or FAILED because of `reason`. A cancel may have a reason too.

    `summary` is the job as shown until now, `previous_epoch` that of the stored owner, 0 if there is none. `can_run`:
    owners of the job may have started tasks, which are stopped first (R16). `last_epoch`: the highest epoch of the job
    that this leader knows, 0 if it knows none. `refusals`: as in StoreOwner.
    """

    source: JobSource
    summary: JobSummary
    status: JobStatus
    reason: str
    previous_epoch: int
    can_run: bool = False
    last_epoch: int = 0
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class ReloadJob:
    """Read the stored state of this job."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class SeekResult:
    """Read whether this job, whose owner is lost, has a result (R3). EndStored follows if it has, else nothing."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class SendAssign:
    """Tell the owner to run its job."""

    incarnation: Incarnation
    message: AssignJob


@dataclass(frozen=True, slots=True)
class SendCancel:
    """Tell the owner to cancel the job. `reason`: why the cluster wants it, "" if a client does."""

    incarnation: Incarnation
    job_id: JobId
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SendDrop:
    """Tell a process to stop running jobs, and to leave their durable state as it is."""

    incarnation: Incarnation
    entries: tuple[JobInventoryEntry, ...]


@dataclass(frozen=True, slots=True)
class SendDrain:
    """Tell a process to begin or to end its draining. The process says when it has."""

    incarnation: Incarnation
    is_draining: bool


@dataclass(frozen=True, slots=True)
class SendNotTaken:
    """Tell a draining process that no other process can take its jobs, and why."""

    incarnation: Incarnation
    reason: str


@dataclass(frozen=True, slots=True)
class PublishSummary:
    """The shown summary of a job has changed: wake the calls that wait for it."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class EndJobEverywhere:
    """The job has a stored result: tell the ResourceManager (R16), and have it cleaned."""

    job_id: JobId
    keeps_outputs: bool = False


@dataclass(frozen=True, slots=True)
class ReplySubmitted:
    """Answer a submit."""

    request: int
    outcome: SubmitOutcome
    status: JobStatus


@dataclass(frozen=True, slots=True)
class ReplyCancelled:
    """Answer a cancel."""

    request: int


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """Answer a drain, a move or a heartbeat."""

    request: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer a request with an error."""

    request: int
    error: FlinklikeError


Transaction = StoreJob | StoreOwner | StoreWanted | StoreMoveWish | StorePromise | StoreEnd | ReloadJob | SeekResult
Message = SendAssign | SendCancel | SendDrop | SendDrain | SendNotTaken
Answer = ReplySubmitted | ReplyCancelled | ReplyDone | Refuse
DispatcherEffect = Transaction | Message | Answer | PublishSummary | EndJobEverywhere
Effects = list[DispatcherEffect]

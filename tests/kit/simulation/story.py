"""A history as a person reads it: when, who, what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import WatchEvent
from tests.kit.simulation.checker import Violation
from tests.kit.simulation.history import (
    Acknowledged,
    Answered,
    Applied,
    AttemptEnded,
    AttemptStarted,
    BatchCommitted,
    BlobDeleted,
    Cancelling,
    Damaged,
    DisposalAccepted,
    DisposalShown,
    Disposing,
    Expired,
    Fault,
    Happening,
    History,
    InContact,
    OperationAccepted,
    OperationShown,
    OutputChanged,
    ProcessEvent,
    QueryHeld,
    QueryReleased,
    QueryStarted,
    Received,
    Refused,
    RestoreRefused,
    Restoring,
    Returned,
    SavepointSeen,
    SavepointTaken,
    Sent,
    Shown,
    Submitting,
    SubmitUnreadable,
    WorkerEnded,
    WorkerReleased,
    WorkerStarted,
)

_TEXT_MAX = 260


def story(history: History, violations: tuple[Violation, ...], keys: Keys) -> Iterator[str]:
    """One line for each thing that happened; violations stand where they were found."""
    waiting = sorted(violations, key=lambda violation: violation.at)
    start = history.records[0].at if history.records else 0.0
    for record in history.records:
        while waiting and waiting[0].at < record.at:
            yield _violation(waiting.pop(0), start)
        text = told(record.what, keys)
        if text:
            yield f"{record.at - start:9.3f}  {record.process:<10} {text}"
    for violation in waiting:
        yield _violation(violation, start)


def _violation(violation: Violation, start: float) -> str:
    return f"{violation.at - start:9.3f}  !!!!!!!!!! [{violation.rule}] {violation.what}"


def told(what: Happening, keys: Keys) -> str:
    """In words."""
    return _WORDS[type(what)](what, keys)


def _applied(what: Applied, keys: Keys) -> str:
    if not what.events and what.result.succeeded:
        return ""
    return f"{'writes' if what.result.succeeded else 'is refused'}: {_changes(what.events, keys)}"


def _started(what: AttemptStarted, _keys: Keys) -> str:
    return f"slot {what.slot_index} starts {'exclusive ' if what.is_exclusive else ''}{what.attempt_id}"


def _ended(what: AttemptEnded, _keys: Keys) -> str:
    return f"{what.attempt_id} is {'killed' if what.state is None else what.state.name}"


def _shown(what: Shown, _keys: Keys) -> str:
    return f"sees job {what.job_id}: {'unknown' if what.status is None else what.status.name}"


_WORDS: dict[type, Callable[[Any, Keys], str]] = {
    Applied: _applied,
    Expired: lambda what, keys: f"lease {what.lease} ends: {_changes(what.events, keys)}",
    Sent: lambda what, _: f"-> {what.peer}: {_short(what.message)}",
    Received: lambda what, _: f"<- {what.peer}: {_short(what.message)}",
    AttemptStarted: _started,
    AttemptEnded: _ended,
    QueryStarted: lambda what, _: f"{what.attempt_id} begins to work on {what.directory}, behind batch {what.behind}",
    QueryHeld: lambda what, _: f"{what.attempt_id} is held for {what.hold}",
    QueryReleased: lambda what, _: f"{what.attempt_id} {'finishes' if what.finishes else 'goes on'}, by {what.hold}",
    SavepointSeen: lambda what, _: f"savepoint of {what.trigger_id}: {what.problem or what.batches}",
    Restoring: lambda what, _: f"starts job {what.job_id} from {what.directory}",
    SubmitUnreadable: lambda what, _: f"is told that what is stored of job {what.job_id} cannot be read",
    RestoreRefused: lambda what, _: f"is told that job {what.job_id} cannot start from {what.directory}",
    Disposing: lambda what, _: f"wants savepoint {what.directory} deleted: disposal {what.trigger_id}",
    DisposalAccepted: lambda what, _: f"is told that disposal {what.trigger_id} is accepted",
    DisposalShown: lambda what, _: f"sees disposal {what.trigger_id}: {what.state.name if what.state else 'unknown'}",
    SavepointTaken: lambda what, _: f"savepoint {what.directory} is gone{f', claimed by {what.by}' if what.by else ''}",
    OperationAccepted: lambda what, _: f"is told that operation {what.trigger_id} of job {what.job_id} is accepted",
    OperationShown: lambda what, _: f"sees operation {what.trigger_id}: {what.state.name if what.state else 'unknown'}",
    BatchCommitted: lambda what, _: f"batch {what.batch_id} is committed in {what.directory}",
    Submitting: lambda what, _: f"submits job {what.job_id} (will be {what.expected.name})",
    Answered: lambda _what, _keys: "",
    Refused: lambda what, _: f"is told that there is no room for job {what.job_id}",
    Acknowledged: lambda what, _: f"is told that the {what.what} of job {what.job_id} is accepted",
    Cancelling: lambda what, _: f"wants job {what.job_id} cancelled",
    Shown: _shown,
    Returned: lambda what, _: f"gets the value of job {what.job_id}: {what.value}",
    WorkerStarted: lambda what, _: f"starts worker {what.worker_id}: {what.slots} slots of {what.slots_max}",
    WorkerReleased: lambda what, _: f"{'kills' if what.kills else 'releases'} worker {what.worker_id}",
    WorkerEnded: lambda what, _: f"worker {what.worker_id} is gone",
    Fault: lambda what, _: f"*** {what.what}",
    ProcessEvent: lambda what, _: f"=== {what.what}",
    InContact: lambda _what, _keys: "",
    Damaged: lambda what, _: f"*** {what.key} is lost or spoiled",
    BlobDeleted: lambda what, _: f"object {what.key} is deleted",
    OutputChanged: lambda what, _: f"{what.name} of job {what.job_id} {_there(what.size)}",
}


def _there(size: int | None) -> str:
    return "is gone" if size is None else f"has {size} bytes"


def _changes(events: tuple[WatchEvent, ...], keys: Keys) -> str:
    return ", ".join(
        f"{'-' if event.is_delete else '+'}{event.kv.key.removeprefix(keys.root)}@{event.kv.mod_revision}"
        for event in events
    )


def _short(message: Any) -> str:
    text = repr(message)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."

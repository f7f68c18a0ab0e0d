"""The states of the AdaptiveScheduler, Flink's, and what follows in each from the slots that there are.

Pure: a state is a value, time is that of the `Outlook`. Invariants: a job begins, and is rescaled, only with the lower
bounds of all its vertices; a rescale that nothing forces waits for the cooldown after the one before; what a job lacks
is waited for as long as the options say, and no longer (R69).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from runtime.common.ids import VertexId
from runtime.executiongraph.archived_rescales import RescaleCause
from runtime.scheduler.core.adaptive.settings import AdaptiveSchedulerSettings

Parallelism = Mapping[VertexId, int]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What there is. `current`: the parallelism of the vertices that can be rescaled; `possible`: what their slots
    allow, None with fewer slots than the lower bounds take.

    `is_desired`: every vertex could have its upper bound. `is_short`: there are fewer slots than subtasks.
    `are_bounds_new`: they were changed since the parallelism was chosen.
    """

    now: float
    current: Parallelism
    possible: Parallelism | None
    is_desired: bool
    is_short: bool
    are_bounds_new: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing yet. `until`: when to look again though nothing happens; None: not at all."""

    until: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The vertices get this parallelism."""

    parallelism: Parallelism
    cause: RescaleCause


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job fails: it has waited long enough."""

    waited: float


Decision = Wait | Change | GiveUp


@dataclass(frozen=True, slots=True)
class State:
    """One state. `LEADS_TO`: names of those that may follow."""

    NAME: ClassVar[str]
    LEADS_TO: ClassVar[frozenset[str]]

    def decide(self, outlook: Outlook, settings: AdaptiveSchedulerSettings) -> tuple[State, Decision]:
        """What follows from the slots that there are: the state with what it has noticed, and a decision."""
        del outlook, settings
        return self, Wait()


_ENDS = frozenset({"Failing", "Canceling", "Finished"})


@dataclass(frozen=True, slots=True)
class Created(State):
    """The job is known, and has asked for nothing."""

    NAME: ClassVar[str] = "Created"
    LEADS_TO: ClassVar[frozenset[str]] = frozenset({"WaitingForResources"}) | _ENDS


@dataclass(frozen=True, slots=True)
class WaitingForResources(State):
    """The job has asked for slots. `since`: when it began to wait; `enough_since`: since when it could."""

    NAME: ClassVar[str] = "WaitingForResources"
    LEADS_TO: ClassVar[frozenset[str]] = frozenset({"CreatingExecutionGraph"}) | _ENDS
    since: float = 0.0
    enough_since: float | None = None

    def decide(self, outlook: Outlook, settings: AdaptiveSchedulerSettings) -> tuple[State, Decision]:
        """Begin with all that is desired, or with enough when more has not come for a while."""
        ends = None if settings.resource_wait is None else self.since + settings.resource_wait
        if outlook.possible is None:
            if ends is not None and outlook.now >= ends:
                return self, GiveUp(outlook.now - self.since)
            return replace(self, enough_since=None), Wait(ends)
        since = outlook.now if self.enough_since is None else self.enough_since
        begins = since + settings.submission_stabilization
        begins = begins if ends is None else min(begins, ends)
        if outlook.is_desired or outlook.now >= begins:
            return self, Change(outlook.possible, RescaleCause.INITIAL_SCHEDULE)
        return replace(self, enough_since=since), Wait(begins)


@dataclass(frozen=True, slots=True)
class CreatingExecutionGraph(State):
    """The new parallelism is being made durable; nothing is deployed before."""

    NAME: ClassVar[str] = "CreatingExecutionGraph"
    LEADS_TO: ClassVar[frozenset[str]] = frozenset({"Executing"}) | _ENDS


@dataclass(frozen=True, slots=True)
class Executing(State):
    """The job runs. `since`: with this parallelism. `better_since`, `short_since`: since when there are other slots
    than it uses, or too few; None while that is not so."""

    NAME: ClassVar[str] = "Executing"
    LEADS_TO: ClassVar[frozenset[str]] = frozenset({"Restarting", "StopWithSavepoint"}) | _ENDS
    since: float = 0.0
    better_since: float | None = None
    short_since: float | None = None

    def decide(self, outlook: Outlook, settings: AdaptiveSchedulerSettings) -> tuple[State, Decision]:
        """Go on with fewer slots when none come for those that are gone, and with more behind the cooldown."""
        if outlook.is_short:
            return self._short(outlook, settings)
        if outlook.possible is None or outlook.possible == outlook.current:
            return replace(self, better_since=None, short_since=None), Wait()
        better_since = outlook.now if self.better_since is None else self.better_since
        noticed = replace(self, better_since=better_since, short_since=None)
        begins = self.since + settings.cooldown
        if not outlook.is_desired:
            begins = max(begins, better_since) + settings.executing_stabilization
        if outlook.now < begins:
            return noticed, Wait(begins)
        new = RescaleCause.UPDATE_REQUIREMENT if outlook.are_bounds_new else RescaleCause.NEW_RESOURCE_AVAILABLE
        return noticed, Change(outlook.possible, new)

    def _short(self, outlook: Outlook, settings: AdaptiveSchedulerSettings) -> tuple[State, Decision]:
        since = outlook.now if self.short_since is None else self.short_since
        noticed = replace(self, better_since=None, short_since=since)
        if outlook.possible is None:
            if settings.resource_wait is None:
                return noticed, Wait()
            ends = since + settings.resource_wait
            return noticed, GiveUp(outlook.now - since) if outlook.now >= ends else Wait(ends)
        begins = since + settings.submission_stabilization
        if outlook.now < begins:
            return noticed, Wait(begins)
        return noticed, Change(outlook.possible, RescaleCause.RECOVERABLE_FAILOVER)


@dataclass(frozen=True, slots=True)
class Restarting(State):
    """Queries end, so that they can start with another parallelism."""

    NAME: ClassVar[str] = "Restarting"
    LEADS_TO: ClassVar[frozenset[str]] = frozenset({"CreatingExecutionGraph"}) | _ENDS


@dataclass(frozen=True, slots=True)
class StopWithSavepoint(State):
    """A stop with a savepoint is under way: nothing is rescaled. `before`: the state that goes on if it fails."""

    NAME: ClassVar[str] = "StopWithSavepoint"
    LEADS_TO: ClassVar[frozenset[str]] = frozenset({"Executing"}) | _ENDS
    before: Executing = field(default_factory=Executing)


@dataclass(frozen=True, slots=True)
class Failing(State):
    """A failure ends the job."""

    NAME: ClassVar[str] = "Failing"
    LEADS_TO: ClassVar[frozenset[str]] = frozenset({"Canceling", "Finished"})


@dataclass(frozen=True, slots=True)
class Canceling(State):
    """The job is cancelled."""

    NAME: ClassVar[str] = "Canceling"
    LEADS_TO: ClassVar[frozenset[str]] = frozenset({"Finished"})


@dataclass(frozen=True, slots=True)
class Finished(State):
    """The job has ended, whatever way."""

    NAME: ClassVar[str] = "Finished"
    LEADS_TO: ClassVar[frozenset[str]] = frozenset()


STATES: tuple[type[State], ...] = (
    Created,
    WaitingForResources,
    CreatingExecutionGraph,
    Executing,
    Restarting,
    StopWithSavepoint,
    Failing,
    Canceling,
    Finished,
)
"""All of them, as Flink has them."""

"""Queues: each job waits for slots in one. What a job names, and what an operator has set for a queue. Values only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from runtime.common.errors import ForbiddenError, InvalidInputError
from runtime.common.namespaces import ALL_NAMESPACES, DEFAULT_NAMESPACE

DEFAULT_QUEUE = "default"
"""The queue of jobs that name none and have no submitter, and of jobs of earlier releases."""
PRIORITY_MIN, PRIORITY_MAX = -(2**31), 2**31 - 1
"""Those of Airflow's `priority_weight`."""
WEIGHT_MIN, WEIGHT_MAX = 0.001, 1000.0
QUEUE_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,126}"
"""The names that a submitter can have, so that each has a queue of its own."""
_QUEUE = re.compile(QUEUE_PATTERN + r"\Z")


@dataclass(frozen=True, slots=True)
class JobShare:
    """Where a job waits for slots: its queue, and its priority there, the highest first."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The share of one queue. `min_slots` come before all weights; None: no limit.

    `namespaces`: whose jobs may be in it, beside those of principals of all namespaces (R48).
    """

    weight: float = 1.0
    min_slots: int = 0
    max_slots: int | None = None
    max_running_jobs: int | None = None
    namespaces: tuple[str, ...] = ()


UNSET = QueueSettings()
"""A queue that came into being when a job named it."""


def check_queue(name: str) -> str:
    """Returns the name as it is. Raises InvalidInputError when no queue can have it."""
    if not _QUEUE.match(name):
        message = (
            f"{name[:40]!r} is not a queue: expected up to 127 letters, digits and . _ @ -, beginning with a letter "
            "or digit"
        )
        raise InvalidInputError(message)
    return name


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue with a job, or with settings. `share`: the slots that it has a claim to while all its jobs want more.

    `running_jobs` hold slots, `waiting_jobs` lack some: a job may do both. `is_named`: an operator has set
    options of it.
    """

    name: str
    settings: QueueSettings
    held: int
    share: float
    running_jobs: int
    waiting_jobs: int
    is_named: bool = False


def in_slots(share: float) -> str:
    """A share in words."""
    return "1 slot" if share == 1 else f"{share:.4g} slots"


def _meant(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" (is {near[0]} meant?)" if near else ""


@dataclass(frozen=True, slots=True)
class Submitter:
    """Who submits a job: `name` is "" for the admin. `is_of_all`: it may act in all namespaces."""

    name: str
    namespace: str
    is_of_all: bool


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Which job may be in which queue (R48, R64). `is_open`: a queue comes into being when a job names it."""

    queues: Mapping[str, QueueSettings] = field(default_factory=dict)
    is_open: bool = True

    def queue_for(self, submitter: Submitter, asked: str = "", team: str = "") -> str:
        """The queue of a job: `asked`; without one that of its team or its submitter, if it may be; else `default`.

        Raises InvalidInputError and ForbiddenError for one that is asked for and cannot be.
        """
        if asked:
            self._check(check_queue(asked), submitter)
            return asked
        return next((one for one in (team, submitter.name) if self.may_be(one, submitter)), DEFAULT_QUEUE)

    def doubts(self, submitter: Submitter, asked: str, asked_namespace: str) -> list[str]:
        """What looks like a slip in a submit that is taken: a name without options, where others have some.

        It names only what the submitter may use.
        """
        known = sorted(one for one in self.queues if self.may_be(one, submitter))
        doubts: list[str] = []
        if asked and asked not in {DEFAULT_QUEUE, submitter.name, *self.queues} and known:
            doubts.append(
                f"queue {asked}: it has no options, so it is a new one with weight 1{_meant(asked, known)}; "
                f"queues with options are {', '.join(known[:20])}"
            )
        of_queues = {one for settings in self.queues.values() for one in settings.namespaces} - {ALL_NAMESPACES}
        served = sorted(of_queues) if submitter.is_of_all else []
        if asked_namespace and served and asked_namespace not in {DEFAULT_NAMESPACE, *served}:
            doubts.append(
                f"namespace {asked_namespace}: no queue with options is for it{_meant(asked_namespace, served)}; "
                f"there are queues for {', '.join(served[:20])}"
            )
        return doubts

    def _check(self, name: str, submitter: Submitter) -> None:
        if self.may_be(name, submitter):
            return
        if submitter.is_of_all or (name not in self.queues and name == submitter.name):
            known = ", ".join(sorted({DEFAULT_QUEUE, *self.queues})[:20])
            message = f"there is no queue {name}: with slotmanager.queues.open: false there are {known}"
            raise InvalidInputError(message)
        message = (
            f"jobs of the namespace {submitter.namespace} may not be in the queue {name}: they may where "
            f"slotmanager.queue.{name}.namespaces has {submitter.namespace}, in the queue of their submitter, and in "
            f"{DEFAULT_QUEUE}"
        )
        raise ForbiddenError(message)

    def may_be(self, name: str, submitter: Submitter) -> bool:
        """True if a job of that submitter may be in the queue. It sees that queue too."""
        if not _QUEUE.match(name):
            return False
        if name == DEFAULT_QUEUE:
            return True
        settings = self.queues.get(name)
        if settings is None:
            return self.is_open and (submitter.is_of_all or name == submitter.name)
        return submitter.is_of_all or not {ALL_NAMESPACES, submitter.namespace}.isdisjoint(settings.namespaces)

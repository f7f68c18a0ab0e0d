"""The slots that one job has declared to need, and those of them that it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from runtime.common.ids import Incarnation, JobId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.shares import JobShare
from runtime.common.spark_environments import DEFAULT_ENVIRONMENT, EnvironmentSpec, SparkOffer, SparkWish
from runtime.common.waiting import NOT_WAITING, Waiting
from runtime.gateways.resource_manager import JobRequirements, RequestSlot, ResourceProfile, ResourceRequirement
from runtime.resourcemanager.core.reach import Reach
from runtime.resourcemanager.core.slots import Allocation


@dataclass(slots=True)
class JobNeeds:
    """The needs of one job under its present owner. `held[None]` counts those of unknown profiles."""

    job_id: JobId
    epoch: int
    owner: Incarnation
    owner_address: str
    requirements: tuple[ResourceRequirement, ...] = ()
    reach: Reach = field(default_factory=Reach)
    wish: SparkWish = field(default_factory=SparkWish)
    """Its static Spark conf."""
    needs_spark: bool = False
    spark_needs: tuple[bytes, bytes, bool, bool] = (b"", b"", False, False)
    """What it has declared of Spark, as bytes: equal for jobs that fit the same TaskManagers."""
    namespace: str = DEFAULT_NAMESPACE
    share: JobShare = field(default_factory=JobShare)
    shunned: frozenset[Incarnation] = frozenset()
    """TaskManagers whose slots it wants only while it has none like them elsewhere (R67)."""
    held: dict[ResourceProfile | None, int] = field(default_factory=dict)
    waiting: Waiting = NOT_WAITING
    declared_at: float = 0.0

    @property
    def is_idle(self) -> bool:
        """True if the job wants nothing and has nothing."""
        return not self.requirements and not any(self.held.values())

    @property
    def wants_environment(self) -> bool:
        """True if its slots may count with a Spark environment beside the default one."""
        return self.needs_spark or not self.wish.is_empty

    @property
    def may_hold(self) -> bool:
        """True if it has slots, or may have some that its owner cannot reach."""
        return any(self.held.values()) or bool(self.reach.named or self.reach.deaf)

    def environment_of(self, offer: SparkOffer) -> EnvironmentSpec:
        """The Spark environment that its slots count with there. Code that may do without Spark reserves none: a task
        of it that touches Spark nevertheless waits for room in its slot.
        """
        return offer.environment(self.wish) if self.wants_environment else DEFAULT_ENVIRONMENT

    def hold(self, allocation: Allocation, change: int) -> None:
        """Count an allocation in or out. An allocation that the owner cannot reach is of no use to the job (R7)."""
        if allocation.incarnation not in self.reach.named:
            self.held[allocation.profile] = self.held.get(allocation.profile, 0) + change

    def unfulfilled(self) -> Iterator[tuple[ResourceRequirement, int]]:
        """What is missing: requirements, each with the number of its slots that the job does not hold.

        In the order of the declaration. What is held of a profile counts for the first requirement of it. Allocations
        of an unknown profile count for the first requirement that is short.
        """
        unknown, held = self.held.get(None, 0), dict(self.held)
        for need in self.requirements:
            taken = min(need.count, held.get(need.profile, 0))
            held[need.profile] = held.get(need.profile, 0) - taken
            short = need.count - taken
            if short > unknown:
                yield need, short - unknown
            if short > 0:
                unknown = max(0, unknown - short)

    def missing(self) -> ResourceProfile | None:
        """The profile of the first slot that is missing, None when everything declared is held."""
        need = self.missing_need()
        return None if need is None else need.profile

    def missing_need(self) -> ResourceRequirement | None:
        """The first requirement that is short."""
        return next((need for need, _ in self.unfulfilled()), None)

    def declare(self, declared: JobRequirements, owner: Incarnation, address: str, at: float) -> bool:
        """Take over the complete requirement set. True if what counts as held has to be counted anew (R7)."""
        if self.epoch != declared.epoch:
            self.epoch = declared.epoch
            self.reach = Reach(self.reach.named)
        self.owner = owner
        self.owner_address = address
        self.requirements = tuple(need for need in declared.requirements if need.count > 0)
        asked, script = json.loads(declared.static_conf or b"{}"), json.loads(declared.script_conf or b"{}")
        self.wish = SparkWish(self.job_id, asked, script, declared.is_application)
        self.needs_spark = declared.needs_spark
        self.spark_needs = declared.static_conf, declared.script_conf, declared.is_application, declared.needs_spark
        self.shunned = frozenset(declared.shunned)
        self.declared_at = at
        before, self.reach.named = self.reach.named, frozenset(declared.unreachable)
        return self.reach.named != before

    def slot_request(self, allocation: Allocation, profile: ResourceProfile) -> RequestSlot:
        """The message that asks a TaskManager for the slot of an allocation."""
        return RequestSlot(
            allocation_id=allocation.allocation_id,
            slot_index=allocation.slot_index,
            more_slots=allocation.more_slots,
            job_id=self.job_id,
            epoch=self.epoch,
            job_master_incarnation=self.owner,
            job_master_address=self.owner_address,
            profile=profile,
            namespace=self.namespace,
        )

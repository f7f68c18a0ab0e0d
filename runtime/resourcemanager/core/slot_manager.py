"""Which job gets which slot: declarative requirements against reported slots.

Invariants: a slot has at most one allocation; queues have their shares (R64), and the jobs of a queue are served
round robin, one slot a turn, so that a job with 500 subtasks does not starve a small one (semantics.md, Slots); an
allocation is requested in the same step as the event that made it possible. What a TaskManager reports about its slots
is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import assert_never

from runtime.common.ids import AllocationId, Incarnation, JobId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.shares import JobShare, QueueSettings, QueueStatus
from runtime.common.waiting import NOT_WAITING, Waiting, WaitingKind
from runtime.gateways.resource_manager import (
    PreemptSlots,
    RegisterTaskManager,
    ResourceProfile,
    SlotRequestRefused,
    SlotStatus,
)
from runtime.resourcemanager.core import events as ev
from runtime.resourcemanager.core import fair_shares, tenants
from runtime.resourcemanager.core.demand import Lacking
from runtime.resourcemanager.core.fitting import START_ONE, Shortages, Waits, with_kept
from runtime.resourcemanager.core.job_needs import JobNeeds
from runtime.resourcemanager.core.matching import Matching
from runtime.resourcemanager.core.preemption import ASK_KEPT_AGAIN_SECONDS, Preemption
from runtime.resourcemanager.core.queues import Queues
from runtime.resourcemanager.core.slots import Allocation, TaskManagerSlots
from runtime.resourcemanager.core.worker_profiles import Demand, WorkerProfile, WorkerProfiles

Effects = list[ev.SlotManagerEffect]
REFUSED_PAUSE_SECONDS = 1.0
LIFTED_MAX = 100
"""Jobs that are told in one tick that a limit of their queue holds them up no more."""


IsOwner = Callable[[JobId, Incarnation, int], bool]
"""True if this process owns the job under this epoch at this moment."""

NamespaceOf = Callable[[JobId], str]
"""The namespace that the job belongs to, as the leader has stored it (R48)."""

ShareOf = Callable[[JobId], JobShare]
"""The queue of the job and its priority there, as the leader has stored them (D-128)."""

NO_SETTINGS: Mapping[str, QueueSettings] = {}


class SlotManager:
    """Decides on one event at a time. `new_id` makes allocation ids; `is_owner` is asked before each allocation (R7).

    An unanswered request for a slot is given up after `request_timeout` seconds; `round_seconds` is a round of `Reach`.
    `preemption_timeout`: how long a queue waits with less than its share before slots are taken from others; None: for
    as long as it takes until some become free. `profiles`: what a driver can start.
    """

    def __init__(
        self,
        new_id: Callable[[], AllocationId],
        is_owner: IsOwner,
        namespace_of: NamespaceOf = lambda _: DEFAULT_NAMESPACE,
        share_of: ShareOf = lambda _: JobShare(),
        *,
        queues: Mapping[str, QueueSettings] = NO_SETTINGS,
        request_timeout: float,
        round_seconds: float,
        preemption_timeout: float | None = None,
        profiles: Sequence[WorkerProfile] = (),
    ) -> None:
        self._new_id = new_id
        self._is_owner = is_owner
        self._namespace_of = namespace_of
        self._share_of = share_of
        self._request_timeout = request_timeout
        self._round_seconds = round_seconds
        self._task_managers: dict[Incarnation, TaskManagerSlots] = {}
        self._numbers = count(1)
        self._jobs: dict[JobId, JobNeeds] = {}
        self._allocations: dict[AllocationId, Allocation] = {}
        self._settings = queues
        self._queues = Queues(queues)
        self._statuses: list[QueueStatus] | None = None
        self._preemption = None if preemption_timeout is None else Preemption(preemption_timeout)
        self._matching = Matching(self._task_managers)
        self._profiles = WorkerProfiles(profiles)
        self._shortages = Shortages(self._profiles)
        self._paused: dict[JobId, float] = {}
        self._unowned: set[JobId] = set()
        """Jobs that got no slot in the last round, because the declaring process did not own the job at that moment."""
        self._now = 0.0
        self._advice = START_ONE
        self._is_more_coming = False

    def handle(self, event: ev.SlotManagerEvent, at: float) -> Effects:
        """Decide on one event that happened `at` (monotonic seconds)."""
        self._now = at
        self._statuses = None
        self._shortages.clear()
        match event:
            case ev.TaskManagerRegistered(registration):
                effects = self._on_registered(registration)
            case ev.SlotsReported():
                effects = self._on_reported(event)
            case ev.AllocationsFreed():
                effects = self._on_freed(event)
            case ev.AllocationRefused(incarnation, refusal):
                effects = self._on_refused(incarnation, refusal)
            case ev.SlotsKept():
                effects = self._on_kept(event)
            case ev.TaskManagerDisconnected(incarnation):
                effects = self._on_disconnected(incarnation)
            case ev.TaskManagerLost(incarnation):
                effects = self._on_lost(incarnation)
            case ev.RequirementsDeclared():
                effects = self._on_declared(event)
            case ev.JobsFinished() | ev.AdviceChanged() | ev.Ticked():
                effects = self._on_leader(event)
            case _:
                assert_never(event)
        return effects

    def _on_leader(self, event: ev.JobsFinished | ev.AdviceChanged | ev.Ticked) -> Effects:
        match event:
            case ev.JobsFinished(jobs):
                return self._on_jobs_finished(jobs)
            case ev.AdviceChanged(advice, coming):
                self._advice = advice
                self._shortages.coming = coming
                return self._serve(capacity_changed=True)
            case ev.Ticked(is_more_coming):
                self._is_more_coming = is_more_coming
                return self._on_ticked()
            case _:
                assert_never(event)

    # --- reads --------------------------------------------------------------------------------------------

    def task_managers(self) -> Iterator[TaskManagerSlots]:
        """All registered TaskManagers, in the order of their registration."""
        return iter(self._task_managers.values())

    def task_manager(self, incarnation: Incarnation) -> TaskManagerSlots | None:
        """The TaskManager, if it is registered."""
        return self._task_managers.get(incarnation)

    def slot_counts(self) -> tuple[int, int]:
        """(slots in all, free ones)."""
        total = sum(peer.slots_total for peer in self._task_managers.values())
        return total, sum(len(peer.free) for peer in self._task_managers.values() if peer.is_connected)

    def job(self, job_id: JobId) -> JobNeeds | None:
        """The declaration of a job and the slots that it holds; None for a job with neither."""
        return self._jobs.get(job_id)

    def demand(self) -> Demand:
        """What waiting jobs lack, and TaskManagers would give that a driver can start."""
        lacking = Lacking(self._profiles, self._task_managers.values(), self._queues)
        return lacking.demand((*self._queues, *self._paused), self._jobs)

    def _waits(self) -> Waits:
        kept = {one.job_id: one.incarnation for one in self._matching.kept()}
        return Waits(self._jobs, self._task_managers, self._shortages, kept, self._queues)

    def queues(self) -> Sequence[QueueStatus]:
        """All queues that have jobs or settings, by name; made anew when an event has come since."""
        if self._statuses is None:
            self._statuses = fair_shares.statuses(self._queues, self._settings, self.slot_counts()[0])
        return self._statuses

    def shown_waiting(self, job_id: JobId) -> Waiting:
        """Why the job waits at this moment, with its place in its queue; NOT_WAITING if it lacks no slot."""
        job, queue = self._jobs.get(job_id), self._queues.queue_of(job_id)
        if job is None or queue is None:
            return NOT_WAITING
        share = next(one.share for one in self.queues() if one.name == queue.name)
        return fair_shares.with_place(self.waiting_of(job), queue, queue.position(job_id), share)

    # --- TaskManagers -------------------------------------------------------------------------------------

    def _on_registered(self, registration: RegisterTaskManager) -> Effects:
        self._profiles.registered(registration)
        known = self._task_managers.get(registration.incarnation)
        if known is None:
            self._task_managers[registration.incarnation] = TaskManagerSlots(registration, numbers=self._numbers)
        else:
            known.registered_again(registration)
        return self._serve(capacity_changed=True)  # jobs that wait learn that it is there: its slots may take a while

    def _on_reported(self, event: ev.SlotsReported) -> Effects:
        peer = self._task_managers.get(event.incarnation)
        if peer is None:
            return []
        before = peer.slots_total, peer.report.problem, peer.tenant
        ended, found = peer.reconcile(event.report, overdue_before=self._now - self._request_timeout)
        for allocation in ended:
            self._forget(allocation)
        for statuses in found:
            self._found(peer, statuses)
        effects = self._serve(capacity_changed=(peer.slots_total, peer.report.problem, peer.tenant) != before)
        for job_id in dict.fromkeys(statuses[0].job_id for statuses in found):
            job = self._jobs.get(job_id) if job_id is not None else None
            if job is not None:
                effects += self._explain(job)
        return effects

    def _found(self, peer: TaskManagerSlots, statuses: Sequence[SlotStatus]) -> None:
        """An allocation that only the report tells of, with all its slots."""
        first, *others = sorted(statuses, key=lambda status: status.slot_index)
        assert first.allocation_id is not None, first
        assert first.job_id is not None, first
        known = self._allocations.get(first.allocation_id)
        if known is not None:
            self._forget(known)
        allocation = Allocation(
            first.allocation_id, peer.incarnation, first.slot_index, first.job_id, first.profile, None, since=self._now
        )
        allocation.more_slots = tuple(status.slot_index for status in others)
        peer.take(allocation)
        self._remember(allocation)

    def _on_freed(self, event: ev.AllocationsFreed) -> Effects:
        peer = self._task_managers.get(event.incarnation)
        for allocation_id in event.freed.allocations:
            allocation = self._allocations.get(allocation_id)
            if allocation is None or peer is None or allocation.incarnation != event.incarnation:
                continue
            peer.release(allocation)
            if self._is_unwanted(allocation):
                self._pause(allocation.job_id)
            self._forget(allocation)
        return self._serve(capacity_changed=False)

    def _is_unwanted(self, allocation: Allocation) -> bool:
        """True if a job has given the slot back at once, and has declared nothing since.

        The job needs less than it could declare: its owner reaches the TaskManagers and does not reach this leader. A
        new allocation would be given back at once too, a thousand times a second.
        """
        job, at = self._jobs.get(allocation.job_id), allocation.requested_at
        return job is not None and at is not None and job.declared_at <= at > self._now - REFUSED_PAUSE_SECONDS

    def _pause(self, job_id: JobId) -> None:
        """Give no slots to a job whose declaration is out of date, until it declares again or a pause is over."""
        self._queues.leave(job_id)
        self._paused[job_id] = self._now + REFUSED_PAUSE_SECONDS

    def _on_refused(self, incarnation: Incarnation, refusal: SlotRequestRefused) -> Effects:
        peer = self._task_managers.get(incarnation)
        allocation = self._allocations.get(refusal.allocation_id)
        if peer is None or allocation is None:
            return []
        job = self._jobs.get(allocation.job_id)
        if refusal.is_owner_unreachable and job is not None:
            job.reach.deaf[incarnation] = self._now + self._request_timeout
        until = self._now + REFUSED_PAUSE_SECONDS
        if refusal.is_slot_free:
            # The declaration is older than the end of the job: another job gets the slot.
            peer.release(allocation)
        else:
            peer.block(allocation, until)
        if job is not None and not tenants.serves(peer, job.namespace):
            peer.keep_tenant(job.job_id)
        self._forget(allocation)
        is_job_refused = refusal.is_slot_free and not refusal.is_owner_unreachable
        if is_job_refused and allocation.job_id in self._queues:
            self._pause(allocation.job_id)
        return self._serve(capacity_changed=refusal.is_owner_unreachable)

    def _on_kept(self, event: ev.SlotsKept) -> Effects:
        for allocation_id in event.refusal.allocations:
            allocation = self._allocations.get(allocation_id)
            if allocation is not None and allocation.incarnation == event.incarnation:
                allocation.preempted_for = ""
                allocation.ask_again_at = self._now + ASK_KEPT_AGAIN_SECONDS
        return self._preempt()

    def _on_disconnected(self, incarnation: Incarnation) -> Effects:
        peer = self._task_managers.get(incarnation)
        if peer is not None:
            peer.is_connected = False
            for allocation in peer.allocations:  # an order to give it back may be lost
                allocation.preempted_for, allocation.ask_again_at = "", self._now
        return self._serve(capacity_changed=True)

    def _on_lost(self, incarnation: Incarnation) -> Effects:
        peer = self._task_managers.pop(incarnation, None)
        if peer is None:
            return []
        for allocation in peer.allocations:
            self._forget(allocation)
        return self._serve(capacity_changed=True)

    def _on_ticked(self) -> Effects:
        unblocked = [peer for peer in self._task_managers.values() if peer.unblock(self._now)]
        due = [job_id for job_id, until in self._paused.items() if until <= self._now]
        for job_id in due:
            del self._paused[job_id]
            job = self._jobs.get(job_id)
            if job is not None and job.missing() is not None:
                self._queues.enter(job_id, job.share)
        expired = [job_id for job_id, job in self._jobs.items() if job.reach.expire(self._now)]
        lifted = [peer for peer in self._task_managers.values() if self._lift(peer)]
        is_more_free = unblocked or due or lifted or self._matching.has_kept_for_too_long(self._now)
        effects = self._serve(capacity_changed=False) if is_more_free or expired or self._unowned else []
        return effects + self._explain_lifted() + self._cut_off() + self._preempt()

    def _lift(self, peer: TaskManagerSlots) -> bool:
        """R50: lift what holds the TaskManager for a namespace that needs it no more. True if that changes anything."""
        before = peer.is_kept, peer.claim, peer.is_promised
        peer.is_kept = False
        if peer.claim and not self._is_awaited(peer, peer.claim):
            peer.claim = ""
        peer.is_promised = peer.is_promised and self._is_awaited(peer, peer.tenant)
        return before != (peer.is_kept, peer.claim, peer.is_promised)

    def _is_awaited(self, peer: TaskManagerSlots, namespace: str) -> bool:
        """True if a job of this namespace waits that could run on the TaskManager."""
        waiting = (self._jobs[job_id] for job_id in (*self._queues, *self._paused) if job_id in self._jobs)
        return any(
            (profile := job.missing()) is not None
            and not job.reach.skips(peer.incarnation)
            and peer in self._matching.fitting(job, profile)
            for job in waiting
            if job.namespace == namespace
        )

    def _cut_off(self) -> Effects:
        """R7: cut off the owners that could not reach what their jobs need for too many rounds."""
        effects: Effects = []
        for job_id, job in self._jobs.items():
            is_needed = job_id in self._queues and self._is_held_up(job)
            if job.reach.note_round(is_needed=is_needed, now=self._now, round_seconds=self._round_seconds):
                effects.append(ev.OwnerCutOff(job_id, job.epoch))
        return effects

    def _is_held_up(self, job: JobNeeds) -> bool:
        """True if a TaskManager that the owner cannot reach has a slot that the job lacks."""
        profile = job.missing()
        if profile is None or not (job.reach.named or job.reach.deaf):
            return False
        skipped = [peer for peer in self._matching.fitting(job, profile) if job.reach.skips(peer.incarnation)]
        return any(peer.has_for(job.job_id, profile) for peer in skipped if not peer.report.is_draining)

    # --- jobs ---------------------------------------------------------------------------------------------

    def _on_declared(self, event: ev.RequirementsDeclared) -> Effects:
        declared = event.requirements
        job = self._jobs.get(declared.job_id)
        if job is not None and declared.epoch < job.epoch:
            return []  # R1: an older owner
        if job is None:
            if not declared.requirements:
                return []
            job = JobNeeds(declared.job_id, declared.epoch, event.owner, event.owner_address)
            job.namespace = self._namespace_of(declared.job_id)
            job.share = self._share_of(declared.job_id)
            self._count_held(job)
            self._jobs[declared.job_id] = job
        if job.declare(declared, event.owner, event.owner_address, self._now):
            self._count_held(job)
        self._note_environments(job)
        self._paused.pop(job.job_id, None)
        if job.missing() is None:
            self._queues.leave(job.job_id)
        else:
            self._queues.enter(job.job_id, job.share)
        effects = self._serve(capacity_changed=False)
        effects += self._explain(job)
        if job.is_idle:
            del self._jobs[job.job_id]
        return effects

    def _note_environments(self, job: JobNeeds) -> None:
        """Of allocations that only a report has shown, the next leader learns here what Spark environment they have."""
        if job.wish.is_empty and not job.needs_spark:
            return
        for allocation in self._allocations.values():
            peer = self._task_managers.get(allocation.incarnation)
            if allocation.job_id == job.job_id and peer is not None:
                allocation.environment = job.environment_of(peer.offer)

    def _count_held(self, job: JobNeeds) -> None:
        job.held.clear()
        for allocation in self._allocations.values():
            if allocation.job_id == job.job_id:
                job.hold(allocation, 1)

    def _on_jobs_finished(self, jobs: Sequence[JobId]) -> Effects:
        for job_id in jobs:
            self._queues.leave(job_id)
            self._paused.pop(job_id, None)
            self._jobs.pop(job_id, None)
            for peer in self._task_managers.values():
                peer.present.discard(job_id)
        return []

    def _remember(self, allocation: Allocation) -> None:
        self._allocations[allocation.allocation_id] = allocation
        job = self._jobs.get(allocation.job_id)
        self._queues.hold(allocation, self._share_of(allocation.job_id) if job is None else job.share)
        if job is not None:
            job.hold(allocation, 1)
            if job.missing() is None:
                self._queues.leave(job.job_id)

    def _forget(self, allocation: Allocation) -> None:
        if self._allocations.pop(allocation.allocation_id, None) is not None:
            self._queues.release(allocation)
        job = self._jobs.get(allocation.job_id)
        if job is None:
            return
        job.hold(allocation, -1)
        if job.missing() is not None:
            if job.job_id not in self._paused:
                self._queues.enter(job.job_id, job.share)
        elif job.is_idle:
            del self._jobs[job.job_id]

    # --- matching -----------------------------------------------------------------------------------------

    def _serve(self, *, capacity_changed: bool) -> Effects:
        """Allocate slots, one request a turn to the next job of the next queue, until no job can be served."""
        effects: Effects = []
        served: dict[JobId, None] = {}
        self._unowned.clear()
        waiting = [one for one in self._matching.jobs_kept_for() if one in self._queues]
        self._matching.check_kept({one: (self._jobs[one], self._room_of(one)) for one in waiting}, self._now)
        while self._serve_round(effects, served):
            pass
        self._shortages.clear()
        for job_id in [*served, *(self._queues if capacity_changed else ())]:
            effects += self._explain(self._jobs[job_id])
        return effects

    def _serve_round(self, effects: Effects, served: dict[JobId, None]) -> bool:
        """True if slots were kept that others may have now."""
        is_kept_less = False
        for kept in self._matching.kept():
            if not self._queues.limit_of(kept.job_id):
                is_kept_less |= self._serve_job(self._jobs[kept.job_id], effects, served)
        while self._queues and self._matching.has_free_slot() and (job_id := self._queues.next()) is not None:
            before = len(effects)
            is_kept_less |= self._serve_job(job := self._jobs[job_id], effects, served)
            if len(effects) == before and job_id in self._queues:
                self._queues.pass_over(job_id)
                if self._matching.keep(job, self._room_of(job_id), self._now):
                    served[job_id] = None  # its reason says so
        self._queues.end_round()
        return is_kept_less

    def _serve_job(self, job: JobNeeds, effects: Effects, served: dict[JobId, None]) -> bool:
        """One request for the job, if that can be. True if slots that were kept for it are free for others."""
        request = self._allocate(job)
        if request is None:
            return False
        effects.append(request)
        served[job.job_id] = None
        self._queues.leave(job.job_id)
        if job.missing() is not None:
            self._queues.enter(job.job_id, job.share)
        return self._matching.served(job, request.message.profile)

    def _room_of(self, job_id: JobId) -> float:
        """How many slots more its queue may have."""
        return self._queues.room_of(self._jobs[job_id].share.queue).slots

    def _allocate(self, job: JobNeeds) -> ev.SendRequestSlot | None:
        """Slots for the first requirement that can be served."""
        if job.missing_need() is None:
            return None
        if not self._is_owner(job.job_id, job.owner, job.epoch):
            self._unowned.add(job.job_id)  # the process has lost the job since it declared, or may be about to
            return None
        for need, _ in job.unfulfilled():
            chosen = self._matching.choose(job, need)
            if chosen is not None and self._queues.has_room_for(job.job_id, chosen.shares_for(need.profile)):
                return self._request(job, need.profile, chosen)
        return None

    def _request(self, job: JobNeeds, profile: ResourceProfile, peer: TaskManagerSlots) -> ev.SendRequestSlot:
        index, *more = peer.next_free(peer.shares_for(profile))
        allocation = Allocation(self._new_id(), peer.incarnation, index, job.job_id, profile, self._now)
        allocation.more_slots = tuple(more)
        allocation.environment = job.environment_of(peer.offer)
        allocation.since = self._now
        peer.take(allocation)
        if peer.registration.has_tenants:
            peer.tenant = peer.tenant or job.namespace
        self._allocations[allocation.allocation_id] = allocation
        self._queues.serve(allocation, job.share)
        job.hold(allocation, 1)
        return ev.SendRequestSlot(peer.incarnation, job.slot_request(allocation, profile))

    # --- preemption -----------------------------------------------------------------------------------------

    def _preempt(self) -> Effects:
        """Ask slots back of queues above their share, for those that have waited with less for too long."""
        if self._preemption is None or self._is_more_coming or not self._queues:
            return []
        slots, held = self.slot_counts()[0], self._allocations.values()
        chosen = self._preemption.choose(self._queues, slots, held, self._waits(), self._now)
        by_reason: dict[tuple[Incarnation, str], list[AllocationId]] = {}
        for one in chosen:
            by_reason.setdefault((one.allocation.incarnation, one.reason), []).append(one.allocation.allocation_id)
        return [
            ev.SendPreemptSlots(peer, PreemptSlots(tuple(allocations), reason))
            for (peer, reason), allocations in by_reason.items()
        ]

    # --- reasons ------------------------------------------------------------------------------------------

    def waiting_of(self, job: JobNeeds) -> Waiting:
        """Why the job waits at this moment; NOT_WAITING if it lacks no slot."""
        profile = job.missing()
        if profile is None:
            return NOT_WAITING
        if limit := self._queues.limit_of(job.job_id, self._shares_of(job, profile)):
            return limit
        found = self._shortages.of(self._task_managers.values(), job, profile, self._advice)
        kept = self._matching.kept_for(job)
        return found if kept is None else with_kept(found, kept)

    def _shares_of(self, job: JobNeeds, profile: ResourceProfile) -> int:
        return self._shortages.shares_of(self._task_managers.values(), job, profile)

    def _explain(self, job: JobNeeds) -> Effects:
        """Tell the owner why its job waits, if that has changed."""
        waiting = self.waiting_of(job)
        if waiting == job.waiting:
            return []
        job.waiting = waiting
        return [ev.NotifyJob(job.job_id, waiting)]

    def _explain_lifted(self) -> Effects:
        """Tell owners of jobs that no limit of their queue holds up any more, so many at a time.

        A limit may come and go with each task, for 10,000 jobs that wait.
        """
        effects: Effects = []
        for job in self._jobs.values():
            if job.waiting.kind is WaitingKind.QUEUE and not self._queues.limit_of(job.job_id):
                effects += self._explain(job)
            if len(effects) >= LIFTED_MAX:
                break
        return effects

"""Which free slots a job gets for a requirement, and which are kept until there are enough of them (D-141)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from runtime.common.ids import Incarnation, JobId
from runtime.gateways.resource_manager import ResourceProfile, ResourceRequirement
from runtime.resourcemanager.core import tenants
from runtime.resourcemanager.core.fitting import fitting, preferred
from runtime.resourcemanager.core.job_needs import JobNeeds
from runtime.resourcemanager.core.reservations import Reservation, Reservations
from runtime.resourcemanager.core.slots import TaskManagerSlots


class Matching:
    """Chooses among the TaskManagers of one leader term."""

    def __init__(self, peers: Mapping[Incarnation, TaskManagerSlots]) -> None:
        self._peers = peers
        self._kept = Reservations()

    def has_free_slot(self) -> bool:
        """True if a slot is free, and not kept."""
        return any(
            peer.free and peer.is_connected and self._kept.holder_of(peer.incarnation) is None
            for peer in self._peers.values()
        )

    def choose(self, job: JobNeeds, need: ResourceRequirement) -> TaskManagerSlots | None:
        """The TaskManager for the next slots of this requirement; None if there is none now."""

        def has_room(peer: TaskManagerSlots) -> bool:
            return peer.has_room_in_slots(need.profile) and not self._kept.is_kept_from(peer, job.job_id, need.profile)

        fits = self._fits(job, need)
        if any(not job.environment_of(peer.offer).is_default for peer in fits):
            fits = _with_room(fits, job, has_room)
        if job.shunned:
            fits = preferred(fits, job, need.profile, self._peers.values(), has_room)
        return tenants.choose(fits, job.job_id, job.namespace, has_room)

    def fitting(self, job: JobNeeds, profile: ResourceProfile) -> list[TaskManagerSlots]:
        """The connected TaskManagers that could serve the job, with or without a free slot."""
        return fitting(self._peers.values(), job, profile)

    def _fits(self, job: JobNeeds, need: ResourceRequirement) -> list[TaskManagerSlots]:
        found = [peer for peer in self.fitting(job, need.profile) if not job.reach.skips(peer.incarnation)]
        return [peer for peer in found if peer.incarnation not in need.without] if need.without else found

    # --- what is kept ---------------------------------------------------------------------------------------

    def kept(self) -> Sequence[Reservation]:
        """TaskManagers that are kept for jobs."""
        return list(self._kept)

    def jobs_kept_for(self) -> Collection[JobId]:
        """Those for which something is kept, or was, and is no more."""
        return self._kept.jobs()

    def kept_for(self, job: JobNeeds) -> TaskManagerSlots | None:
        """The TaskManager whose free slots are kept for the job."""
        found = self._kept.of(job.job_id)
        return None if found is None else self._peers.get(found.incarnation)

    def keep(self, job: JobNeeds, room: float, now: float) -> bool:
        """The job is next, and got nothing: keep slots for it where it needs several at once, and its queue leaves it
        that `room`. True if that is news.
        """
        if self._kept.has_one(job.share.queue):
            return False
        for need, _ in job.unfulfilled():
            fits = [peer for peer in self._fits(job, need) if not peer.report.is_draining]
            if not fits or min(peer.shares_for(need.profile) for peer in fits) == 1:
                continue
            able = [
                peer
                for peer in fits
                if tenants.serves(peer, job.namespace) and min(peer.slots_total, room) >= peer.shares_for(need.profile)
            ]
            if any(peer.has_room_in_slots(need.profile) for peer in able):
                return False  # it waits for something else
            return self._kept.choose(job.job_id, job.share.queue, need.profile, able, now) is not None
        return False

    def served(self, job: JobNeeds, profile: ResourceProfile) -> bool:
        """The job got slots for a requirement. True if others may have what was kept for it."""
        return self._kept.had(job.job_id, profile) and self._kept.end(job.job_id)

    def check_kept(self, waiting: Mapping[JobId, tuple[JobNeeds, float]], now: float) -> None:
        """Keep nothing any more that is of no use to its job, or for too long. `waiting`: jobs that lack slots now, and
        how many their queues leave them.
        """
        self._kept.check(lambda one: one.job_id in waiting and self._is_needed(one, *waiting[one.job_id]), now)

    def has_kept_for_too_long(self, now: float) -> bool:
        """True if something is kept that others may have now."""
        return any(now >= one.until for one in self._kept)

    def _is_needed(self, kept: Reservation, job: JobNeeds, room: float) -> bool:
        peer = self._peers.get(kept.incarnation)
        if peer is None or not peer.is_connected or peer.report.is_draining or peer.shares_for(kept.profile) > room:
            return False
        if job.reach.skips(peer.incarnation) or not tenants.serves(peer, job.namespace):
            return False
        lacking = [need for need, _ in job.unfulfilled() if need.profile == kept.profile]
        return any(kept.incarnation not in need.without for need in lacking)


def _with_room(
    peers: Sequence[TaskManagerSlots], job: JobNeeds, has_room: Callable[[TaskManagerSlots], bool]
) -> list[TaskManagerSlots]:
    """Those with the free slots that have the job's Spark environment; else those that have room for it."""
    free = [peer for peer in peers if peer.free and peer.has_room_for(job.environment_of(peer.offer))]
    return [one for one in free if has_room(one) and one.has_started(job.environment_of(one.offer))] or free

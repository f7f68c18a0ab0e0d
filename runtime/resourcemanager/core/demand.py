"""What waiting jobs lack of TaskManagers that a driver can start, by profile (R65, D-141)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from runtime.common.ids import JobId
from runtime.common.worker_ids import profile_of
from runtime.gateways.resource_manager import ResourceProfile
from runtime.resourcemanager.core.fitting import fitting
from runtime.resourcemanager.core.job_needs import JobNeeds
from runtime.resourcemanager.core.queues import Queues, Room
from runtime.resourcemanager.core.slots import TaskManagerSlots, can_hold
from runtime.resourcemanager.core.worker_profiles import Demand, WorkerProfile, WorkerProfiles


class Lacking:
    """What jobs lack at one moment."""

    def __init__(self, profiles: WorkerProfiles, peers: Collection[TaskManagerSlots], queues: Queues) -> None:
        self._profiles = profiles
        self._peers = peers
        self._queues = queues
        self._misfits: dict[tuple[ResourceProfile, tuple[bytes, bytes, bool, bool], str], bool] = {}

    def demand(self, waiting: Iterable[JobId], needs: Mapping[JobId, JobNeeds]) -> Demand:
        """Of waiting jobs in their order, as far as the limits of their queues let them have it."""
        rooms: dict[str, Room] = {}
        found: dict[str, Counter[int]] = {}
        for job_id in waiting:
            if (job := needs.get(job_id)) is None:
                continue
            wanted = [
                (*choice, count) for need, count in job.unfulfilled() if (choice := self._choice(job, need.profile))
            ]
            room = rooms.setdefault(job.share.queue, self._queues.room_of(job.share.queue))
            left = room.take(job_id, sum(shares * count for _, shares, count in wanted))
            for kind, shares, count in wanted:
                granted = min(count, left // shares)
                left -= granted * shares
                if granted:
                    found.setdefault(kind.name, Counter())[shares] += granted
        return found

    def _choice(self, job: JobNeeds, profile: ResourceProfile) -> tuple[WorkerProfile, int] | None:
        able = self._profiles.choices(profile)
        return next((choice for choice in able if not self._is_misfit(job, profile, choice[0].name)), None)

    def _is_misfit(self, job: JobNeeds, profile: ResourceProfile, name: str) -> bool:
        """True if TaskManagers of that kind are there, and lack the Spark that the job needs."""
        key = profile, job.spark_needs, name
        if key not in self._misfits:
            there = [
                peer.incarnation
                for peer in self._peers
                if profile_of(peer.registration.worker_id) == name
                and peer.is_connected
                and can_hold(peer.registration, profile)
            ]
            fits = {peer.incarnation for peer in fitting(self._peers, job, profile)} if there else set()
            self._misfits[key] = bool(there) and fits.isdisjoint(there)
        return self._misfits[key]

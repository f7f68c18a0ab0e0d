"""Which TaskManagers could serve a job, and why none does (R53: with the Spark that it asks for)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace

from runtime.common.ids import Incarnation, JobId
from runtime.common.spark_environments import why_unserved
from runtime.common.waiting import Waiting, WaitingKind
from runtime.common.worker_ids import DEFAULT_PROFILE_NAME
from runtime.gateways.resource_manager import ResourceProfile
from runtime.resourcemanager.core import tenants
from runtime.resourcemanager.core.job_needs import JobNeeds
from runtime.resourcemanager.core.queues import Queues
from runtime.resourcemanager.core.slots import Allocation, TaskManagerSlots, can_hold
from runtime.resourcemanager.core.worker_profiles import WorkerProfile, WorkerProfiles


def fitting(peers: Collection[TaskManagerSlots], job: JobNeeds, profile: ResourceProfile) -> list[TaskManagerSlots]:
    """The connected TaskManagers that could serve the job, with or without a free slot.

    Code that expects Spark runs without it only where no TaskManager has it: then it is plain Python after all.
    """
    able = [peer for peer in peers if peer.is_connected and can_hold(peer.registration, profile)]
    if not job.wish.is_empty:
        with_spark = [peer for peer in able if peer.registration.has_spark and peer.offer.can_serve(job.wish)]
        if with_spark or job.wish.asked or job.wish.is_application:
            return [peer for peer in with_spark if peer.offer.fulfils(job.wish)] or with_spark
    if job.needs_spark and any(peer.registration.has_spark for peer in peers):
        return [peer for peer in able if peer.registration.has_spark]
    return able


def preferred(
    fits: Sequence[TaskManagerSlots],
    job: JobNeeds,
    profile: ResourceProfile,
    peers: Collection[TaskManagerSlots],
    has_room: Callable[[TaskManagerSlots], bool],
) -> list[TaskManagerSlots]:
    """Without those that the job shuns, if others could serve it, and one can or it has such a slot there (R67)."""
    others = [peer for peer in fits if peer.incarnation not in job.shunned]
    serving = [peer for peer in others if tenants.serves(peer, job.namespace) and not peer.report.is_draining]
    if any(has_room(peer) for peer in serving):
        return others
    elsewhere = (peer for peer in peers if peer.incarnation not in job.shunned)
    has_one = any(
        (one.job_id, one.profile) == (job.job_id, profile) for peer in elsewhere for one in peer.allocated.values()
    )
    return others if serving and has_one else list(fits)


START_ONE = "start one with bin/taskmanager.sh start"
"""The advice where no driver starts TaskManagers."""


def shortage(
    peers: Collection[TaskManagerSlots],
    job: JobNeeds,
    profile: ResourceProfile,
    advice: str = START_ONE,
    choices: Sequence[tuple[WorkerProfile, int]] | None = None,
) -> Waiting:
    """Why the job gets no slot of this profile. `advice`: what to do where there is no TaskManager; `choices`: what a
    driver can start for it, None without a driver.
    """
    connected = [peer for peer in peers if peer.is_connected]
    able = any(can_hold(peer.registration, profile) for peer in connected)
    if not able and choices is not None:
        return _not_there(profile, advice, choices, is_alone=not connected)
    if not connected:
        reason = f"no TaskManager is registered: {advice}"
        return Waiting(WaitingKind.TASK_MANAGERS, reason)
    if not able:
        return Waiting(WaitingKind.FITTING_SLOTS, _none_holds(connected, profile))
    fits = fitting(peers, job, profile)
    if not fits:
        return Waiting(WaitingKind.FITTING_SLOTS, _misfit(connected, job))
    reachable = [peer for peer in fits if not job.reach.skips(peer.incarnation)]
    if not reachable:
        reason = f"the JobMaster cannot reach any of {len(fits)} TaskManagers with slots that fit"
        return Waiting(WaitingKind.TASK_MANAGERS, reason)
    return _full(reachable, job, profile)


class Shortages:
    """What `shortage` says at one moment, found once for all jobs that need the same: 10,000 of them may wait."""

    def __init__(self, profiles: WorkerProfiles) -> None:
        self._profiles = profiles
        self._found: dict[Hashable, Waiting] = {}
        self._misfits: dict[Hashable, bool] = {}
        self._shares: dict[Hashable, int] = {}
        self.coming = ""
        """What is coming for those who wait for slots in use, or why nothing is."""

    def clear(self) -> None:
        """Something has changed."""
        self._found.clear()
        self._misfits.clear()
        self._shares.clear()

    def shares_of(self, peers: Collection[TaskManagerSlots], job: JobNeeds, profile: ResourceProfile) -> int:
        """How many slots of one TaskManager a task takes where it takes fewest."""
        if not profile.memory_bytes and not profile.cpu_cores:
            return 1
        key = profile, job.spark_needs
        if key not in self._shares:
            self._shares[key] = min((peer.shares_for(profile) for peer in fitting(peers, job, profile)), default=1)
        return self._shares[key]

    def is_misfit(self, peers: Collection[TaskManagerSlots], job: JobNeeds, profile: ResourceProfile) -> bool:
        """True if slots are there and none fits, in use or not: more of the same would not help the job."""
        key = profile, job.spark_needs
        if key not in self._misfits:
            is_any_there = any(peer.is_connected for peer in peers)
            self._misfits[key] = is_any_there and not fitting(peers, job, profile)
        return self._misfits[key]

    def of(self, peers: Collection[TaskManagerSlots], job: JobNeeds, profile: ResourceProfile, advice: str) -> Waiting:
        """The `shortage` of the job."""
        owner = job.job_id if job.wants_environment and job.may_hold else ""  # may have an environment of its own there
        reach = job.reach.named, frozenset(job.reach.deaf)
        key = profile, job.spark_needs, job.namespace, reach, owner
        if key not in self._found:
            found = shortage(peers, job, profile, advice, self._profiles.choices(profile) if self._profiles else None)
            if self.coming and found.kind is WaitingKind.SLOTS:
                found = Waiting(found.kind, f"{found.reason}; {self.coming}")
            self._found[key] = found
        return self._found[key]


class Waits:
    """What waiting jobs lack, and which slots in use would serve them, at one moment. `kept`: the TaskManagers whose
    slots are kept for jobs: others would not help these.
    """

    def __init__(
        self,
        needs: Mapping[JobId, JobNeeds],
        peers: Mapping[Incarnation, TaskManagerSlots],
        shortages: Shortages,
        kept: Mapping[JobId, Incarnation],
        queues: Queues,
    ) -> None:
        self._needs = needs
        self._peers = peers
        self._shortages = shortages
        self._kept = kept
        self._queues = queues
        self._fitting: dict[JobId, frozenset[Incarnation]] = {}

    def lacks(self, job_id: JobId, /) -> int:
        """How many slots the job lacks."""
        job = self._needs.get(job_id)
        return 0 if job is None else sum(count * self._shares(job, need.profile) for need, count in job.unfulfilled())

    def _shares(self, job: JobNeeds, profile: ResourceProfile) -> int:
        return self._shortages.shares_of(self._peers.values(), job, profile)

    def is_misfit(self, job_id: JobId, share: float, /) -> bool:
        """True if no slot fits the job, in use or not, or it needs more of them at once than its queue would get."""
        job = self._needs.get(job_id)
        profile = None if job is None else job.missing()
        if job is None or profile is None or self._shortages.is_misfit(self._peers.values(), job, profile):
            return True
        shares, room = self._shares(job, profile), self._queues.room_of(job.share.queue).slots
        return shares > 1 and shares > min(room, share)

    def fits(self, job_id: JobId, allocation: Allocation, /) -> bool:
        """True if the job could have the slot of the allocation."""
        if job_id not in self._fitting:
            job = self._needs[job_id]
            need = job.missing_need()
            peers = [] if need is None else fitting(self._peers.values(), job, need.profile)
            unwanted = job.shunned.union(() if need is None else need.without)
            self._fitting[job_id] = frozenset(
                peer.incarnation
                for peer in peers
                if not (job.reach.skips(peer.incarnation) or peer.report.is_draining or peer.incarnation in unwanted)
                and tenants.serves(peer, job.namespace)
                and self._kept.get(job_id, peer.incarnation) == peer.incarnation
            )
        return allocation.incarnation in self._fitting[job_id]


def _not_there(
    profile: ResourceProfile, advice: str, choices: Sequence[tuple[WorkerProfile, int]], *, is_alone: bool
) -> Waiting:
    """No TaskManager has such slots, and what the driver can do about it. `is_alone`: there are no others either."""
    if not choices:
        reason = (
            f"no TaskManager has a slot with {described(profile)}, and the driver starts none that has: ask for less, "
            "or add a profile with it (resourcemanager.profiles)"
        )
        return Waiting(WaitingKind.FITTING_SLOTS, reason)
    name = choices[0][0].name
    if not name and is_alone:
        return Waiting(WaitingKind.TASK_MANAGERS, f"no TaskManager is registered: {advice}")
    reason = f"no TaskManager of profile {name or DEFAULT_PROFILE_NAME} is registered: {advice}"
    return Waiting(WaitingKind.TASK_MANAGERS, reason)


def _none_holds(peers: Collection[TaskManagerSlots], profile: ResourceProfile) -> str:
    """No TaskManager can hold it, however many slots it takes: with the figures of the largest that is of its kind."""
    without_size = replace(profile, cpu_cores=0.0, memory_bytes=0)
    alike = [peer.registration for peer in peers if can_hold(peer.registration, without_size)]
    if not alike:
        return f"none of {len(peers)} TaskManagers offers a slot with {described(profile)}"
    one = max(alike, key=lambda peer: (peer.slots * peer.slot_profile.memory_bytes, peer.cpu_cores))
    slot = one.slot_profile
    return (
        f"none of {len(peers)} TaskManagers can hold a task with {described(profile)}: "
        f"the largest has {one.slots} slots with {slot.memory_bytes >> 20} MiB memory and {slot.cpu_cores:g} cpu cores "
        "each"
    )


def _misfit(connected: Collection[TaskManagerSlots], job: JobNeeds) -> str:
    """Slots of that size are there, and none with the Spark that the job needs."""
    offers = [peer.offer for peer in connected if peer.registration.has_spark]
    if not job.wish.is_empty and offers and not any(offer.can_serve(job.wish) for offer in offers):
        return "; ".join(why_unserved(job.wish, offers))
    return "no TaskManager with Spark has such slots"


def _full(reachable: Collection[TaskManagerSlots], job: JobNeeds, profile: ResourceProfile) -> Waiting:
    """The slots that fit are taken, kept, away, or beside too many Spark environments."""
    total, are_draining = (
        sum(peer.slots_total for peer in reachable),
        all(peer.report.is_draining for peer in reachable),
    )
    if total == 0 or are_draining:
        state = "all of them are draining" if are_draining else "none has a slot ready yet"
        problem = next((f": {peer.report.problem}" for peer in reachable if peer.report.problem), "")
        return Waiting(
            WaitingKind.TASK_MANAGERS, f"{len(reachable)} TaskManagers that fit are registered, {state}{problem}"
        )
    if not any(peer.has_room_for(job.environment_of(peer.offer)) for peer in reachable):
        options = max((peer.offer.room_options for peer in reachable), key=len)  # the longest names all
        reason = (
            f"no room for its Spark environment: those of other jobs are in use on all {len(reachable)} TaskManagers "
            f"that fit ({options})"
        )
        return Waiting(WaitingKind.SPARK_ENVIRONMENT, reason)
    if not any(tenants.serves(peer, job.namespace) for peer in reachable):
        return Waiting(WaitingKind.TENANCY, tenants.HELD_BY_OTHERS.format(len(reachable)))
    shares = min(peer.shares_for(profile) for peer in reachable)
    if shares > 1:
        largest = max(len(peer.free) for peer in reachable)
        reason = (
            f"no TaskManager has {shares} free slots at once, which a task with {described(profile)} takes: "
            f"{largest} of {total} slots that fit are the most that one has"
        )
        return Waiting(WaitingKind.SLOTS, reason)
    return Waiting(WaitingKind.SLOTS, f"no free slot: all {total} slots that fit are in use")


def with_kept(waiting: Waiting, peer: TaskManagerSlots) -> Waiting:
    """The reason of a job for which slots of a TaskManager are kept."""
    name = peer.registration.task_manager_id
    return Waiting(waiting.kind, f"{waiting.reason}; slots that become free on {name} are kept for it")


def described(profile: ResourceProfile) -> str:
    """The profile in words."""
    parts = []
    if profile.spark_profile:
        parts.append(f"spark profile {profile.spark_profile!r}")
    if profile.cpu_cores:
        parts.append(f"{profile.cpu_cores:g} cpu cores")
    if profile.memory_bytes:
        parts.append(f"{profile.memory_bytes >> 20} MiB memory")
    if profile.labels:
        parts.append(f"label{'s' if len(profile.labels) > 1 else ''} {', '.join(profile.labels)}")
    return ", ".join(parts) or "the default profile"

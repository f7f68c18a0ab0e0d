"""Which TaskManagers could serve a job, and why none does (R53: with the Spark that it asks for)."""

from __future__ import annotations

from collections.abc import Collection

from runtime.common.spark_environments import why_unserved
from runtime.common.waiting import Waiting, WaitingKind
from runtime.gateways.resource_manager import ResourceProfile
from runtime.resourcemanager.core import tenants
from runtime.resourcemanager.core.job_needs import JobNeeds
from runtime.resourcemanager.core.slots import TaskManagerSlots, can_hold


def fitting(peers: Collection[TaskManagerSlots], job: JobNeeds, profile: ResourceProfile) -> list[TaskManagerSlots]:
    """The connected TaskManagers that could serve the job, with or without a free slot.

    Code that expects Spark runs without it only where no TaskManager has it: then it is plain Python after all.
    """
    able = [peer for peer in peers if peer.is_connected and can_hold(peer.registration.slot_profile, profile)]
    if not job.wish.is_empty:
        with_spark = [peer for peer in able if peer.registration.has_spark and peer.offer.can_serve(job.wish)]
        if with_spark or job.wish.asked or job.wish.is_application:
            return [peer for peer in with_spark if peer.offer.fulfils(job.wish)] or with_spark
    if job.needs_spark and any(peer.registration.has_spark for peer in peers):
        return [peer for peer in able if peer.registration.has_spark]
    return able


def shortage(peers: Collection[TaskManagerSlots], job: JobNeeds, profile: ResourceProfile) -> Waiting:
    """Why the job gets no slot of this profile."""
    connected = [peer for peer in peers if peer.is_connected]
    if not connected:
        reason = "no TaskManager is registered: start one with bin/taskmanager.sh start"
        return Waiting(WaitingKind.TASK_MANAGERS, reason)
    if not any(can_hold(peer.registration.slot_profile, profile) for peer in connected):
        reason = f"none of {len(connected)} TaskManagers offers a slot with {described(profile)}"
        return Waiting(WaitingKind.FITTING_SLOTS, reason)
    fits = fitting(peers, job, profile)
    if not fits:
        return Waiting(WaitingKind.FITTING_SLOTS, _misfit(connected, job))
    reachable = [peer for peer in fits if not job.reach.skips(peer.incarnation)]
    if not reachable:
        reason = f"the JobMaster cannot reach any of {len(fits)} TaskManagers with slots that fit"
        return Waiting(WaitingKind.TASK_MANAGERS, reason)
    return _full(reachable, job)


def _misfit(connected: Collection[TaskManagerSlots], job: JobNeeds) -> str:
    """Slots of that size are there, and none with the Spark that the job needs."""
    offers = [peer.offer for peer in connected if peer.registration.has_spark]
    if not job.wish.is_empty and offers and not any(offer.can_serve(job.wish) for offer in offers):
        return "; ".join(why_unserved(job.wish, offers))
    return "no TaskManager with Spark has such slots"


def _full(reachable: Collection[TaskManagerSlots], job: JobNeeds) -> Waiting:
    """The slots that fit are taken, away, or beside too many Spark environments."""
    total, are_draining = (
        sum(peer.slots_total for peer in reachable),
        all(peer.report.is_draining for peer in reachable),
    )
    if total == 0 or are_draining:
        state = "all of them are draining" if are_draining else "none has a slot ready yet"
        problem = next((f": {peer.report.problem}" for peer in reachable if peer.report.problem), "")
        return Waiting(WaitingKind.TASK_MANAGERS, f"{len(reachable)} TaskManagers are registered, {state}{problem}")
    if not any(peer.has_room_for(job.environment_of(peer.offer)) for peer in reachable):
        options = max((peer.offer.room_options for peer in reachable), key=len)  # the longest names all
        reason = (
            f"no room for its Spark environment: those of other jobs are in use on all {len(reachable)} TaskManagers "
            f"that fit ({options})"
        )
        return Waiting(WaitingKind.SPARK_ENVIRONMENT, reason)
    if not any(tenants.serves(peer, job.namespace) for peer in reachable):
        return Waiting(WaitingKind.TENANCY, tenants.HELD_BY_OTHERS.format(len(reachable)))
    return Waiting(WaitingKind.SLOTS, f"no free slot: all {total} slots that fit are in use")


def described(profile: ResourceProfile) -> str:
    """The profile in words."""
    parts = []
    if profile.spark_profile:
        parts.append(f"spark profile {profile.spark_profile!r}")
    if profile.cpu_cores:
        parts.append(f"{profile.cpu_cores:g} cpu cores")
    if profile.memory_bytes:
        parts.append(f"{profile.memory_bytes >> 20} MiB memory")
    return ", ".join(parts) or "the default profile"

"""Which TaskManagers a namespace may use, where they serve one namespace at a time (R50).

A TaskManager that serves another namespace is claimed by the one that waits: jobs that were not there before get no
slots there any more, and when nothing is allocated there it is asked for a slot. It refuses that one, and is made anew;
or some job is still there without a slot, and then the claim is lifted, so that this job can go on.

Whom it was made anew for has it first: until a job of that namespace has had a slot there, no other one claims it, as
long as one waits that could run there.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.common.ids import JobId
from runtime.resourcemanager.core.slots import TaskManagerSlots

HELD_BY_OTHERS = (
    "{} TaskManagers have slots that fit, and serve another namespace (taskmanager.tenancy: namespace): the job "
    "gets one when the jobs there have ended and their slots were started anew; or start one more TaskManager"
)


def serves(peer: TaskManagerSlots, namespace: str) -> bool:
    """May jobs of this namespace have slots there as it is?"""
    return not peer.registration.has_tenants or peer.tenant in {"", namespace}


def choose(fitting: Sequence[TaskManagerSlots], job_id: JobId, namespace: str) -> TaskManagerSlots | None:
    """The one to ask for a slot, None if the job has to wait. Of those that others have it claims one."""
    free = [peer for peer in fitting if peer.free and not peer.report.is_draining]
    own = [peer for peer in free if serves(peer, namespace) and _is_open_to(peer, job_id, namespace)]
    if own:
        return min(own, key=lambda peer: peer.rank)
    others = [peer for peer in fitting if not (peer.report.is_draining or peer.is_kept or serves(peer, namespace))]
    claimable = [peer for peer in others if not peer.is_promised and peer.claim in {"", namespace}]
    if not claimable:
        return None
    claimed = min(claimable, key=lambda peer: (not peer.claim, *peer.rank))
    claimed.claim = namespace
    return claimed if claimed.free and claimed.is_idle else None


def _is_open_to(peer: TaskManagerSlots, job_id: JobId, namespace: str) -> bool:
    return peer.claim in {"", namespace} or job_id in peer.present

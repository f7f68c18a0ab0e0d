"""Which TaskManagers a namespace may use, where each serves one namespace at a time: its tenant (R50).

A namespace that waits claims a TaskManager of another tenant: from then on only jobs that have had slots there get
slots there, and when no slot there is allocated, the ResourceManager requests one. The TaskManager refuses that request
and starts its slots anew for the namespace. If a job of the old tenant is still there without a slot, the TaskManager
keeps its tenant, and the claim is lifted so that this job can go on.

The namespace for which slots were started anew has them first: until one of its jobs has had a slot there, no other
namespace claims that TaskManager, as long as a job of the first one waits that could run there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.common.ids import JobId
from runtime.resourcemanager.core.slots import TaskManagerSlots

HELD_BY_OTHERS = (
    "{} TaskManagers have slots that fit, and serve another namespace (taskmanager.tenancy: namespace): the job "
    "gets one when the jobs there have ended and their slots were started anew; or start one more TaskManager"
)


def serves(peer: TaskManagerSlots, namespace: str) -> bool:
    """True if jobs of this namespace may have slots of the TaskManager as it is."""
    return not peer.registration.has_tenants or peer.tenant in {"", namespace}


def choose(
    fitting: Sequence[TaskManagerSlots],
    job_id: JobId,
    namespace: str,
    has_room: Callable[[TaskManagerSlots], bool] = lambda peer: bool(peer.free),
) -> TaskManagerSlots | None:
    """The TaskManager to request a slot from, None if the job has to wait; then one of another tenant is claimed.

    `has_room`: whether those slots are free that the job needs.
    """
    free = [peer for peer in fitting if has_room(peer) and not peer.report.is_draining]
    own = [peer for peer in free if serves(peer, namespace) and _is_open_to(peer, job_id, namespace)]
    if own:
        return min(own, key=lambda peer: peer.rank)
    others = [peer for peer in fitting if not (peer.report.is_draining or peer.is_kept or serves(peer, namespace))]
    claimable = [peer for peer in others if not peer.is_promised and peer.claim in {"", namespace}]
    if not claimable:
        return None
    claimed = min(claimable, key=lambda peer: (not peer.claim, *peer.rank))
    claimed.claim = namespace
    return claimed if has_room(claimed) and claimed.is_idle else None


def _is_open_to(peer: TaskManagerSlots, job_id: JobId, namespace: str) -> bool:
    return peer.claim in {"", namespace} or job_id in peer.present

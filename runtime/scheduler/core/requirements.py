"""When a job's requirements are declared anew.

The set is exact whenever it rises, whenever it has fallen to what the job holds, and in between whenever it has fallen
by an eighth: a job with 500 short subtasks says so about forty times, not five hundred, and in no moment asks for
slots that it would have to give back at once by more than that eighth.
"""

from __future__ import annotations

from runtime.gateways.resource_manager import ResourceRequirement
from runtime.gateways.task import ResourceProfile

FALL_SHOWN_FRACTION = 8


class DeclaredRequirements:
    """What was declared last."""

    __slots__ = ("_declared",)

    def __init__(self) -> None:
        self._declared: tuple[ResourceRequirement, ...] = ()

    def is_due(self, requirements: tuple[ResourceRequirement, ...], *, slots_held: int) -> bool:
        """True if the difference to what was declared last has to be told."""
        if requirements == self._declared:
            return False
        wanted, declared = _counts(requirements), _counts(self._declared)
        if wanted.keys() != declared.keys() or any(count > declared[profile] for profile, count in wanted.items()):
            return True
        before, now = sum(declared.values()), sum(wanted.values())
        return now <= slots_held or (before - now) * FALL_SHOWN_FRACTION >= before

    def declare(self, requirements: tuple[ResourceRequirement, ...]) -> None:
        """They are told now."""
        self._declared = requirements


def _counts(requirements: tuple[ResourceRequirement, ...]) -> dict[ResourceProfile, int]:
    return {requirement.profile: requirement.count for requirement in requirements}

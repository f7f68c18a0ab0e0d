"""`jobmanager.adaptive-scheduler.*`, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.executiongraph.archived_rescales import RescaleSettings


@dataclass(frozen=True, slots=True)
class AdaptiveSchedulerSettings:
    """`resource_wait`: None waits without an end. `is_reactive`: each vertex takes all slots that it can use.

    `history_max`: rescales that are kept of each job.
    """

    is_reactive: bool = False
    resource_wait: float | None = 300.0
    submission_stabilization: float = 10.0
    cooldown: float = 30.0
    executing_stabilization: float = 60.0
    history_max: int = 16

    def shown(self) -> RescaleSettings:
        """For people."""
        return RescaleSettings(
            history_max=self.history_max,
            is_reactive=self.is_reactive,
            resource_wait_millis=-1 if self.resource_wait is None else _millis(self.resource_wait),
            submission_stabilization_millis=_millis(self.submission_stabilization),
            cooldown_millis=_millis(self.cooldown),
            executing_stabilization_millis=_millis(self.executing_stabilization),
        )


DEFAULT_ADAPTIVE_SCHEDULER = AdaptiveSchedulerSettings()


def _millis(seconds: float) -> int:
    return round(seconds * 1000)

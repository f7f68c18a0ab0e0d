"""What a job waits for, as the metrics count it."""

from __future__ import annotations

from runtime.common.waiting import WaitingKind
from runtime.gateways.dispatcher import JobSummary


def waiting_kind(summary: JobSummary) -> str:
    """A word for what the job waits for (`runtime.metrics.table.WAITING_REASONS`), "" when it gets on or has ended.

    `other` where its owner, of an earlier release, says a sentence only.
    """
    if not summary.pending_reason or summary.status.is_globally_terminal:
        return WaitingKind.NOTHING.value
    kind = WaitingKind.of(summary.pending_kind)
    return WaitingKind.OTHER.value if kind is WaitingKind.NOTHING else kind.value

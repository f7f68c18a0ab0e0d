"""The types of /queues."""

from __future__ import annotations

from typing_extensions import TypedDict

Queue = TypedDict(
    "Queue",
    {
        "name": str,
        "weight": float,
        "min-slots": int,
        "max-slots": int | None,
        "max-running-jobs": int | None,
        "slots-held": int,
        "share": float,
        "jobs-running": int,
        "jobs-waiting": int,
    },
)


class Queues(TypedDict):
    """The queues that have jobs or options, by name, of those that the caller may use.

    `share`: the slots that a queue with jobs has a claim to; `jobs-running` hold slots, `jobs-waiting` lack some.
    `problem`: "" unless the minima of the queues add up to more slots than there are.
    """

    queues: list[Queue]
    problem: str

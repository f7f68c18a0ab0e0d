"""How the rows of an edge reach the consumer's subtasks (semantics.md, Pipeline API)."""

from __future__ import annotations

from enum import Enum


class ExchangeMode(Enum):
    """Shared by the JobGraph, the scheduler and the slots."""

    FORWARD = "FORWARD"
    HASH = "HASH"
    REBALANCE = "REBALANCE"
    BROADCAST = "BROADCAST"
    GATHER = "GATHER"

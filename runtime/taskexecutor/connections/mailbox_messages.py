"""What lies in the mailbox of a TaskExecutor, beside the events of its core."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtime.taskexecutor.connections.resource_manager_connection import LeaderConnected, LeaderDisconnected
from runtime.taskexecutor.core.events import Event
from runtime.taskexecutor.core.jobs import JobMasterLocation


@dataclass(frozen=True, slots=True)
class OwnerBatch:
    """What arrived at once on stream `number` to a JobMaster process; `done` lets the stream be read on."""

    location: JobMasterLocation
    number: int
    messages: Sequence[Any]
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class LeaderBatch:
    """What arrived at once from the leader."""

    messages: Sequence[Any]
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class SlotsChanged:
    """Readiness, warmth or load may differ from what the leader was told."""


@dataclass(frozen=True, slots=True)
class ContactChanged:
    """Every turn begins with a look at the contact: let there be one."""


Mail = Event | OwnerBatch | LeaderBatch | LeaderConnected | LeaderDisconnected | SlotsChanged | ContactChanged

"""Clients that go on using a cluster during a flood: REST, and calls on an old and on new gRPC connections."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import httpx

from runtime.aio.clock import LoopClock
from runtime.common.errors import FlinklikeError
from runtime.common.ids import Incarnation
from runtime.rpc.grpc_channels import IDENTITY_PATH, call_metadata, channel_options
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.settings import RpcSettings
from tests.kit.cluster.script_cluster import ScriptCluster

PATIENCE = 20.0
"""Seconds for one answer: a client that waits longer counts as not served."""
_EVERY = 0.05


@dataclass
class Seen:
    """What one kind of user has seen: seconds until each answer, and what was no answer."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def longest(self) -> float:
        """Of the answers; a failure lasts for ever."""
        return float("inf") if self.failures or not self.seconds else max(self.seconds)


@dataclass(frozen=True, slots=True)
class Victim:
    """A process that is flooded."""

    role: str
    pid: int
    address: str


def victims(cluster: ScriptCluster) -> dict[str, Victim]:
    """One process of each role, by role, with the address of its gRPC port."""
    found = {}
    directory = cluster.run / "run" / "pid"
    for role, fact in (("jobmanager", "rpc"), ("jobmaster", "address"), ("taskmanager", "address")):
        pid, _ticks, number = (directory / f"{role}.pid").read_text().splitlines()[0].split()
        facts = json.loads((directory / f"{role}-{number}.json").read_text())
        found[role] = Victim(role, int(pid), facts[fact])
    return found


def terms_of_leaders(cluster: ScriptCluster) -> int:
    """How often a JobManager began to lead, by the logs."""
    logs = (cluster.run / "run" / "log").glob("*jobmanager*.log*")
    return sum(path.read_text(errors="replace").count("leading with epoch") for path in logs)


def lapses(cluster: ScriptCluster) -> int:
    """How often a lease was lost, by the logs."""
    logs = (cluster.run / "run" / "log").glob("*.log*")
    words = ("the term is over", "registration lapsed")
    return sum(path.read_text(errors="replace").count(word) for path in logs for word in words)


def resident_mb(pid: int) -> float:
    """Resident set of one process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


async def use(cluster: ScriptCluster, victim: Victim, until: Callable[[], bool]) -> dict[str, Seen]:
    """Go on using the cluster, and that process, until told to stop."""
    settings = RpcSettings(Incarnation("b" * 32), cluster.credential)
    rpc = GrpcRpcService(settings, LoopClock())
    seen = {name: Seen() for name in ("REST", "gRPC, old connection", "gRPC, new connections")}
    metadata = call_metadata(settings, None, None)
    async with (
        httpx.AsyncClient(
            base_url=cluster.url, headers={"authorization": f"Bearer {cluster.token}"}, timeout=PATIENCE, verify=False
        ) as rest,
        grpc.aio.insecure_channel(victim.address, options=channel_options(settings)) as channel,
    ):
        raw: Any = channel
        call = raw.unary_unary(IDENTITY_PATH)

        async def overview() -> None:
            answer = await rest.get("/overview")
            assert answer.status_code == 200, answer.text

        async def identify() -> None:
            await rpc.identify(victim.address, timeout=PATIENCE)

        async def call_again() -> None:
            _ = await call(b"", metadata=metadata, timeout=PATIENCE)

        async with asyncio.TaskGroup() as group:
            for name, work in zip(seen, (overview, call_again, identify), strict=True):
                _ = group.create_task(_repeat(work, seen[name], until))
    return seen


async def _repeat(work: Callable[[], Awaitable[None]], seen: Seen, until: Callable[[], bool]) -> None:
    while not until():
        began = time.monotonic()
        try:
            await work()
        except (httpx.HTTPError, grpc.aio.AioRpcError, FlinklikeError, AssertionError) as error:
            seen.failures.append(f"{type(error).__name__} after {time.monotonic() - began:.1f} s: {str(error)[:200]}")
        else:
            seen.seconds.append(time.monotonic() - began)
        await asyncio.sleep(_EVERY)

"""R48: a token of REST opens no port between processes, and a job's slot has nothing that opens any."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.errors import UnauthenticatedError
from runtime.common.ids import Incarnation
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.settings import RpcSettings
from runtime.security.cluster_key import read_cluster_key
from runtime.security.internal import derived_credential
from runtime.security.tokens import ClusterToken
from tests.kit.cluster.script_cluster import ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.etcd]

MASK = 0x5A
SEARCH = """
import os, sys
mask = bytes(number ^ 0x5A for number in range(256))
needles = [bytes.fromhex(text) for text in sys.argv[1:]]
shown = []
own = " ".join(f"{key}={value}" for key, value in os.environ.items()).encode().translate(mask)
parents = open(f"/proc/{os.getppid()}/environ", "rb").read().translate(mask)
shown += [f"environment {n}" for n, needle in enumerate(needles) if needle in own or needle in parents]
for name in os.listdir("/proc/self/fd"):
    try:
        path = os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        continue
    if any(part in path for part in ("token", "cluster-key", "/etcd")):
        shown.append(f"descriptor {path}")
searched = 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps.read().splitlines():
        place, rights = line.split()[:2]
        if not rights.startswith("rw") or "[v" in line:
            continue
        start, end = (int(part, 16) for part in place.split("-"))
        at = start
        while at < end:
            memory.seek(at)
            try:
                piece = memory.read(min(1 << 20, end - at))
            except OSError:
                break
            turned = piece.translate(mask)
            shown += [f"memory {n}" for n, needle in enumerate(needles) if needle in turned]
            searched += len(piece)
            at += max(1, len(piece) - 256 if len(piece) == 1 << 20 else len(piece))
print("searched", searched > 1 << 20, "found", shown)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    options = {"high-availability.type": "etcd", "taskmanager.spark.enabled": "false"}
    with ScriptCluster(options, job_masters=1) as made:
        yield made


@asynccontextmanager
async def with_(credential: str, former: str | None = None) -> AsyncIterator[GrpcRpcService]:
    """A process that shows this, and as an earlier release would."""
    shown = None if former is None else ClusterToken(former)
    settings = RpcSettings(Incarnation(SystemEntropy().hex_id()), ClusterToken(credential), former=shown)
    made = GrpcRpcService(settings, LoopClock())
    await made.start()
    try:
        yield made
    finally:
        await made.stop(grace=0)


def addresses(cluster: ScriptCluster) -> list[str]:
    """Of every process that listens for others."""
    found = [one["address"] for one in json.loads(cluster.cli("jobmasters", "--json").stdout)["jobmasters"]]
    found += [one["path"] for one in json.loads(cluster.cli("taskmanagers", "--json").stdout)["taskmanagers"]]
    logs = (cluster.run / "run" / "log").glob("flinklike-*jobmanager*.log")
    said = " ".join(path.read_text() for path in logs)
    return [*found, said.partition("rpc ")[2].split()[0].rstrip(",")]


@pytest.mark.asyncio
async def test_a_token_of_rest_opens_no_port_between_processes(cluster: ScriptCluster) -> None:
    there = addresses(cluster)
    assert len(there) == 3
    made = cluster.cli("tokens", "create", "ann", "--role", "admin").stdout.strip()
    key = read_cluster_key(cluster.run / "run" / "cluster-key")
    credential = derived_credential(key).reveal()
    for token in (cluster.token, made):
        async with with_(token, token) as stranger:
            for address in there:
                with pytest.raises(UnauthenticatedError):
                    await stranger.identify(address, timeout=20)
    async with with_(credential) as friend:
        for address in there:
            assert await friend.identify(address, timeout=20)


def test_a_slot_has_none_of_what_opens_a_port(cluster: ScriptCluster, tmp_path: Path) -> None:
    """Neither its environment, nor its descriptors, nor its memory; its files are its user's (see docs/security.md)."""
    run = cluster.run / "run"
    key = read_cluster_key(run / "cluster-key")
    secrets = [
        cluster.token.encode(),
        (run / "cluster-key").read_bytes().strip(),
        bytes.fromhex((run / "cluster-key").read_text().strip()),
        derived_credential(key).reveal().encode(),
    ]
    needles = [bytes(byte ^ MASK for byte in secret).hex() for secret in secrets]
    (tmp_path / "search.py").write_text(SEARCH)
    done = cluster.cli("run", "search.py", *needles, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "searched True found []" in done.stdout
    # The search finds what is there.
    (tmp_path / "planted.py").write_text(f"kept = {cluster.token!r}.encode() * 3\n" + SEARCH)
    planted = cluster.cli("run", "planted.py", *needles, cwd=tmp_path, timeout=120)
    assert "memory 0" in planted.stdout, planted.stdout + planted.stderr

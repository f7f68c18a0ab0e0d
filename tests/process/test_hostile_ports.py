"""Every port of a cluster, given what is no request: bytes of any kind, and the beginnings of right ones (R39, R52)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.rpc.grpc_channels import (
    CHUNK_PATH,
    CREDENTIAL_KEY,
    HELLO_KEY,
    IDENTITY_PATH,
    SENDER_KEY,
    STREAM_PATH,
    TARGET_KEY,
    TOKEN_KEY,
)
from runtime.rpc.switchboard import known_methods
from tests.fuzz.mutation import Mutator
from tests.kit.cluster.gated_jobs import GatedJobs
from tests.kit.cluster.script_cluster import TEST_RUN, ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.host.process_tree import carrying
from tests.kit.strangers.h2_floods import (
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
    literal,
    request_headers,
)

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.slow]

INPUTS = 120
PATIENCE = 0.02
HTTP2 = PREFACE + frame(SETTINGS, 0, 0)
CALL = HTTP2 + frame(HEADERS, END_HEADERS, 1, request_headers())
SHOWN = b"".join(
    literal(key.encode(), b"AAAA") for key in (TOKEN_KEY, CREDENTIAL_KEY, TARGET_KEY, SENDER_KEY, HELLO_KEY)
)
CALLS = [
    HTTP2 + frame(HEADERS, END_HEADERS, 1, request_headers(path.encode()) + SHOWN) + frame(0, END_STREAM, 1, bytes(5))
    for path in (STREAM_PATH, CHUNK_PATH, IDENTITY_PATH, *sorted(known_methods()))
]
SEEDS = (
    HTTP2,
    *CALLS,
    CALL + frame(RST_STREAM, 0, 1, bytes(4)),
    b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"GET /overview HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    bytes.fromhex("1603010200010001fc0303") + bytes(range(256)),
    b"",
)
GROWTH_MAX = 128 << 20


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    options = {"high-availability.type": "etcd", "taskmanager.spark.enabled": "false"}
    with ScriptCluster(options, masters=2) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def ports(cluster: ScriptCluster) -> dict[int, int]:
    """Every port at which a process of the cluster listens, and which one that is."""
    found = {}
    for pid in carrying(TEST_RUN, str(cluster.run / "run")):
        with suppress(psutil.NoSuchProcess):
            for one in psutil.Process(pid).net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN:
                    found[one.laddr.port] = pid
    return found


def say(port: int, data: bytes) -> None:
    """And hear what may come at once."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, suppress(OSError):
        connection.settimeout(PATIENCE)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass


def memory(pids: list[int]) -> dict[int, int]:
    return {pid: psutil.Process(pid).memory_info().rss for pid in pids}


def test_no_port_is_ended_by_what_it_hears(cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path) -> None:
    jobs = GatedJobs(cluster, client, tmp_path)
    running = jobs.submit("running")
    before = ports(cluster)
    processes = [pid for pids in cluster.pids().values() for pid in pids]
    assert {pid for role in ("jobmanager", "jobmaster") for pid in cluster.pids()[role]} <= {*before.values()}
    grown = memory(processes)
    mutator = Mutator(8)
    for _ in range(INPUTS):
        data = mutator.of(SEEDS)
        for port in before:
            say(port, data)
    assert [pid for pids in cluster.pids().values() for pid in pids] == processes
    assert before.items() <= ports(cluster).items()
    assert max(now - grown[pid] for pid, now in memory(processes).items()) < GROWTH_MAX
    logs = [path.read_text(errors="replace") for path in (cluster.run / "run" / "log").iterdir() if path.is_file()]
    assert not [log[log.find("Traceback") :] for log in logs if "Traceback" in log], "nobody writes long lines there"
    jobs.open_gate("running")
    reached(lambda: jobs.states([running]) == ["FINISHED"], "who has the token is served")
    assert jobs.count("running", "begins") == 1

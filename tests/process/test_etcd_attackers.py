"""An attacker on this host wants the cluster to run his code, by its etcd instead of its REST (R37, R38).

He reads `run/etcd.json`, puts a graph of his own there and deletes the leader's key: the next term would run it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.aio.clock import SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.errors import UnavailableError
from runtime.common.ids import JobId
from runtime.entrypoint.control.embedded_etcd import EmbeddedEtcdSettings
from runtime.highavailability.etcd.settings import EtcdSettings
from runtime.highavailability.etcd.store import EtcdKeyValueStore
from runtime.highavailability.jobs.payloads import inline_payload
from runtime.highavailability.kv.key_value_store import Delete, Put, Txn
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import GraphRecord
from tests.kit.cluster.process_jobs import noting, runs_of, submit
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.etcd.server import start_plain_etcd
from tests.kit.etcd.stored_keys import KEYS, etcd_settings
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "2"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=1) as started:
        yield started


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as connected:
        yield connected


def forge(settings: EtcdSettings, job_id: JobId, marker: Path) -> None:
    """Put a job there, and end the term. Raises UnavailableError when etcd does not let us in."""
    graph = noting(marker, 1).build().graph.canonical_json()
    record = encode_record(GraphRecord(inline_payload(graph), "forged", 1, "nobody"))

    async def attack() -> None:
        kv = EtcdKeyValueStore(settings, SystemClock(), SystemEntropy())
        try:
            await kv.open(timeout=5.0)
            writes = (Put(KEYS.graph(job_id), record), Delete(KEYS.leaders, is_prefix=True))
            await kv.txn(Txn((), writes), timeout=5.0)
        finally:
            await kv.close()

    asyncio.run(attack())


def endpoint_of(cluster: ScriptCluster) -> str:
    return str(json.loads((cluster.run / "run" / "etcd.json").read_text())["endpoint"])


def test_who_has_no_certificate_of_the_cluster_is_not_let_in(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    marker, job_id = tmp_path / "marker", new_job_id()
    ca = str(etcd_settings(cluster).tls_ca)
    for tls_ca in ("", ca):
        with pytest.raises(UnavailableError):
            forge(EtcdSettings((endpoint_of(cluster),), tls_ca=tls_ca, allow_unsafe_version=True), job_id, marker)
    assert submit(client, noting(tmp_path / "mine", 5)).result() == 5
    assert not marker.exists()
    assert job_id not in {one["jid"] for one in client.get("/jobs/overview")["jobs"]}


def test_neither_port_of_etcd_answers_who_has_no_certificate(cluster: ScriptCluster) -> None:
    etcd = psutil.Process(cluster.pids()["etcd"][0])
    listening = [one.laddr for one in etcd.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    assert len(listening) == 2, "for clients, and for peers"
    for address in listening:
        with socket.create_connection(address, timeout=5.0) as plain:
            plain.settimeout(5.0)
            plain.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"etcdserver" not in _all_of(plain)


def _all_of(plain: socket.socket) -> bytes:
    try:
        return b"".join(iter(lambda: plain.recv(4096), b""))
    except ConnectionError:
        return b""


def test_the_keys_of_certificates_are_for_their_owner_only(cluster: ScriptCluster) -> None:
    run = cluster.run / "run"
    folder = run / "etcd-tls"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == dict.fromkeys(
        ("authority.pem", "ca.pem", "client.pem", "server.pem"), 0o600
    )
    assert (run / "cluster-key").stat().st_mode & 0o777 == 0o600


def test_what_is_put_there_with_a_certificate_is_refused_and_told(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    """In depth: he has got a certificate of the cluster, but not its key."""
    marker, job_id = tmp_path / "marker", new_job_id()
    forge(etcd_settings(cluster), job_id, marker)

    def states() -> dict[str, str]:
        return {one["jid"]: one["state"] for one in client.get("/jobs/overview")["jobs"]}

    # Until it writes something the leader does not know that its key is gone.
    assert submit(client, noting(tmp_path / "mine", 5)).result() == 5
    reached(lambda: states().get(job_id) == "FAILED", "the next term has refused the job", timeout=60)
    (entry,) = client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
    assert f"{KEYS.graph(job_id)} is refused: it carries no seal of this cluster" in entry["stacktrace"]
    logs = [path.read_text() for path in (cluster.run / "run" / "log").glob("*jobmanager*.log")]
    assert any(f"'{KEYS.graph(job_id)}' in etcd is refused" in log for log in logs)
    assert not marker.exists()


def test_a_plain_etcd_of_an_earlier_release_is_replaced_and_told() -> None:
    cluster = ScriptCluster(OPTIONS, job_masters=0, workers=0)
    run = cluster.run / "run"
    plain = start_plain_etcd(EmbeddedEtcdSettings(run / "etcd", run / "log" / "etcd.log"))
    reaped = Thread(target=plain.wait)  # it is our child, and would not be gone before
    reaped.start()
    try:
        said = [line for line in cluster.start().splitlines() if line.startswith("[WARNING]")]
        assert said[0].startswith(
            f"[WARNING] The etcd that ran here (pid {plain.pid}, of an earlier release) let in every"
        )
        reaped.join(10)
        assert not reaped.is_alive()
        assert "of an earlier release" not in cluster.start(), "once"
    finally:
        plain.kill()
        cluster.close()


def test_a_task_is_given_neither_the_key_nor_a_way_to_etcd(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    """Neither in its environment, nor in a file that it has open. That it could open one is another matter (D-070)."""
    seen = submit(client, noting(tmp_path / "runs", 1))
    assert seen.result() == 1
    assert runs_of(tmp_path / "runs", seen.job_id) == 1
    run = cluster.run / "run"
    key = (run / "cluster-key").read_text().strip()
    slots = [pid for pid in cluster.processes() if psutil.Process(pid).name().startswith("slot-")]
    assert slots
    for pid in slots:
        assert key.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        targets = {str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()}
        assert not {one for one in targets if "cluster-key" in one or "etcd-tls" in one}

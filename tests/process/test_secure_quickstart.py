"""bin/quickstart.sh --secure: the whole example; the network carries records of TLS only (R46)."""

from __future__ import annotations

import json
import re
import shutil
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.strangers.sniffer import Sniffer, SnifferForbiddenError
from tests.process.test_quickstart import OPTIONS

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.airflow,
    pytest.mark.slow,
    pytest.mark.timeout(1000),
]

LINKS = ("runtime.entrypoint.job_manager", "jobmaster_process", "runtime.entrypoint.task_manager", "etcd")
"""What listens, by its command line: REST and gRPC of JobManagers, gRPC of JobMaster processes, TaskManagers, etcd."""
RECORD_OF_HANDSHAKE = b"\x16\x03"
GUARD = re.compile(rb"[0-9a-f]{32} [0-9a-f-]{36}\n")


class Box:
    """A cluster that the quickstart has made, what that has said, and what was heard meanwhile."""

    def __init__(self, cluster: ScriptCluster, sniffer: Sniffer | None) -> None:
        self.cluster = cluster
        self.sniffer = sniffer
        # No variables: it is found by what its JobManager has said.
        del cluster.environment["FLINKLIKE_ADDRESS"]
        done = cluster.script("quickstart.sh", "--secure", "--scale-factor", "0.01", *cluster.dynamic, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        self.said = done.stdout

    @property
    def certs(self) -> Path:
        return self.cluster.run / "run" / "certs"


@pytest.fixture(scope="module")
def box(class_archive: Path | None) -> Iterator[Box]:
    with ExitStack() as stack, ExitStack() as listening:
        sniffer = None
        with suppress(SnifferForbiddenError):
            sniffer = listening.enter_context(Sniffer())
        cluster = ScriptCluster(OPTIONS, class_archive=class_archive)
        stack.callback(cluster.close)
        made = Box(cluster, sniffer)
        listening.close()
        yield made


def test_the_example_runs_to_its_report(box: Box) -> None:
    assert "TPC-H at scale factor 0.01" in box.said
    assert f"REST: https://127.0.0.1:{box.cluster.port}\n" in box.said
    assert f"security.ssl.rest.ca: {box.certs}/rest-ca.pem\n" in box.said


def test_the_command_line_finds_it(box: Box) -> None:
    done = box.cluster.cli("list", "--json")
    assert done.returncode == 0, done.stderr
    assert {job["state"] for job in json.loads(done.stdout)["jobs"]} == {"FINISHED"}


def test_rest_speaks_tls_only_and_asks_for_the_token(box: Box) -> None:
    url = f"https://127.0.0.1:{box.cluster.port}/overview"
    trusted = ssl.create_default_context(cafile=box.certs / "rest-ca.pem")
    headers = {"authorization": f"Bearer {box.cluster.token}"}
    with httpx.Client(verify=trusted, trust_env=False) as client:
        assert client.get(url).status_code == 401
        assert client.get(url, headers=headers).status_code == 200
    with httpx.Client(trust_env=False) as stranger:
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            stranger.get(url)
        assert stranger.get(url.replace("https", "http"), headers=headers).status_code == 400


def test_who_listens_to_the_network_sees_records_of_tls_only(box: Box) -> None:
    if box.sniffer is None:
        pytest.skip("this user may not listen to the network (CAP_NET_RAW)")
    ports = _ports(box.cluster)
    assert set(ports) == set(LINKS), "each kind of process listens"
    for link, of_link in ports.items():
        heard = box.sniffer.of(of_link)
        assert len(heard) >= 2, f"nobody has asked {link}"
        # A guard's port (R13) answers with its identity, and takes nothing.
        answers = [one for one in heard if not GUARD.fullmatch(one.begin)]
        plain = [one for one in answers if not one.begin.startswith(RECORD_OF_HANDSHAKE)]
        assert not plain, (link, [bytes(one.begin[:80]) for one in plain])
    everything = b"".join(one.begin for one in box.sniffer.said)
    secrets = (box.cluster.token.encode(), box.cluster.credential.reveal().encode())
    assert not [one for one in secrets if one in everything]


def _ports(cluster: ScriptCluster) -> dict[str, set[int]]:
    """Where what listens on TCP, by what its command line says; guards and Spark's JVM are others."""
    found: dict[str, set[int]] = {}
    for pid, command in cluster.processes().items():
        kind = next((one for one in LINKS if one in command), None)
        if kind is not None:
            listening = {one.laddr.port for one in psutil.Process(pid).net_connections("tcp") if one.status == "LISTEN"}
            found.setdefault(kind, set()).update(listening)
    return {kind: ports for kind, ports in found.items() if ports}


@pytest.mark.extended
def test_again_it_goes_on_with_what_runs(box: Box) -> None:
    before, certificate = box.cluster.pids(), (box.certs / "rest-localhost.pem").read_bytes()
    done = box.cluster.script("quickstart.sh", "--scale-factor", "0.01", *box.cluster.dynamic, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "was started with --secure: going on with that" in done.stdout
    assert box.cluster.pids() == before
    assert (box.certs / "rest-localhost.pem").read_bytes() == certificate


def test_a_cluster_in_plain_text_is_not_taken_for_one() -> None:
    cluster = ScriptCluster(OPTIONS)
    pid = cluster.run / "run" / "pid"
    pid.mkdir(parents=True)
    (pid / "jobmanager-0.json").write_text(json.dumps({"address": "127.0.0.1:1", "url": "http://127.0.0.1:1"}))
    done = cluster.script("quickstart.sh", "--secure", *cluster.dynamic)
    shutil.rmtree(cluster.run)
    assert done.returncode != 0
    assert "A cluster in plain text runs here: stop it with bin/stop-cluster.sh" in done.stderr

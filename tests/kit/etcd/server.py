"""A real etcd in a directory, ended by its pid."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.entrypoint.control import embedded_etcd as embedded
from runtime.entrypoint.control.embedded_etcd import EmbeddedEtcdSettings, RunningEtcd
from runtime.entrypoint.control.embedded_tls import EmbeddedTls
from runtime.highavailability.etcd.settings import EtcdSettings
from runtime.highavailability.etcd.store import EtcdKeyValueStore
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import KeyValueStore
from runtime.highavailability.record_seal import RecordSeal
from runtime.security.cluster_key import load_or_create_cluster_key
from tests.kit.host.process_tree import freeze


class EtcdProcess:
    """One etcd that can be killed, frozen and started again on the same data and port."""

    def __init__(self, directory: Path, *, extra_arguments: tuple[str, ...] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._settings = EmbeddedEtcdSettings(
            data_dir=directory / "etcd",
            log_file=directory / "etcd.log",
            extra_arguments=extra_arguments,
        )
        self._running: RunningEtcd | None = None

    def start(self) -> None:
        """Start, or start again on the same port."""
        self._running = embedded.start(self._settings)

    @property
    def endpoint(self) -> str:
        """host:port."""
        assert self._running is not None
        return self._running.endpoint

    @property
    def tls(self) -> EmbeddedTls:
        """Its certificates, and those of its clients."""
        return self._settings.tls

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._running is not None
        return self._running.pid

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        process = psutil.Process(self.pid)
        process.kill()
        process.wait(100)

    def freeze(self) -> None:
        """SIGSTOP; from the return on it does nothing."""
        freeze(self.pid)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def stop(self) -> None:
        """End it for good. Idempotent."""
        if self._running is not None and self._running.process() is not None:
            self.thaw()
            self.kill()

    def ctl(self, *arguments: str) -> str:
        """Run etcdctl against it."""
        binary = embedded.find_binary().with_name("etcdctl")
        environment = {**os.environ, **self.tls.etcdctl_variables(self.endpoint)}
        done = subprocess.run(
            [str(binary), *arguments], check=True, capture_output=True, text=True, timeout=20, env=environment
        )
        return done.stdout

    def settings(self, *endpoints: str, **settings: str | bool) -> EtcdSettings:
        """How to reach it, or what leads to it; unsafe versions are allowed unless said otherwise."""
        client = str(self.tls.client)
        tls = {"tls_ca": str(self.tls.ca), "tls_cert": client, "tls_key": client}
        options = {"allow_unsafe_version": True, **tls, **settings}
        return EtcdSettings(endpoints or (self.endpoint,), **options)  # type: ignore[arg-type]  # a test names real fields

    def options(self, *endpoints: str) -> dict[str, str]:
        """The same as options of a cluster that has it for an etcd of its own."""
        return {
            "high-availability.type": "etcd",
            "high-availability.etcd.embedded": "false",
            "high-availability.etcd.endpoints": ",".join(endpoints or (self.endpoint,)),
            "high-availability.etcd.tls.ca": str(self.tls.ca),
            "high-availability.etcd.tls.cert": str(self.tls.client),
            "high-availability.etcd.tls.key": str(self.tls.client),
            "high-availability.etcd.allow-unsafe-version": "true",
        }

    def store(self, seal: RecordSeal | None = None, /, **settings: str | bool) -> EtcdKeyValueStore:
        """A driver, not open yet. With a seal it is one of a cluster that has that key."""
        return EtcdKeyValueStore(self.settings(**settings), LoopClock(), SystemEntropy(), seal)


def seal_of(run: Path) -> RecordSeal:
    """That of the cluster with this run directory, whose key is made now if it has none."""
    return RecordSeal(load_or_create_cluster_key(run / "cluster-key"))


def start_plain_etcd(settings: EmbeddedEtcdSettings) -> subprocess.Popen[bytes]:
    """As a release before certificates did it: no TLS, and no scheme in the state."""
    settings.data_dir.mkdir(parents=True)
    with socket.socket() as client, socket.socket() as peer:
        client.bind(("127.0.0.1", 0))
        peer.bind(("127.0.0.1", 0))
        endpoint, other = (f"127.0.0.1:{one.getsockname()[1]}" for one in (client, peer))
    arguments = [f"--listen-client-urls=http://{endpoint}", f"--advertise-client-urls=http://{endpoint}"]
    arguments += [f"--listen-peer-urls=http://{other}", f"--initial-advertise-peer-urls=http://{other}"]
    arguments += ["--name=embedded", f"--initial-cluster=embedded=http://{other}", f"--data-dir={settings.data_dir}"]
    process = subprocess.Popen([embedded.find_binary(), *arguments], stderr=subprocess.DEVNULL)
    state = {"pid": process.pid, "started": psutil.Process(process.pid).create_time(), "endpoint": endpoint}
    settings.state_file.write_text(json.dumps(state))
    return process


@dataclass(frozen=True)
class StoreUnderTest:
    """A store, and keys in it that no other test uses."""

    kv: KeyValueStore
    keys: Keys

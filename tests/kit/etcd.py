"""A real etcd in a directory, ended by its pid."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.highavailability import embedded
from runtime.highavailability.embedded import EmbeddedEtcdSettings, RunningEtcd
from runtime.highavailability.etcd.settings import EtcdSettings
from runtime.highavailability.etcd.store import EtcdKeyValueStore
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv import KeyValueStore
from tests.kit.process_tree import freeze


class EtcdProcess:
    """One etcd that can be killed, frozen and started again on the same data and port."""

    def __init__(self, directory: Path, *, scheme: str = "http", extra_arguments: tuple[str, ...] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._settings = EmbeddedEtcdSettings(
            data_dir=directory / "etcd",
            log_file=directory / "etcd.log",
            extra_arguments=extra_arguments,
            scheme=scheme,
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
        command = [str(binary), f"--endpoints={self.endpoint}", *arguments]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=20, env=environment)
        return done.stdout

    def settings(self, **settings: str | bool) -> EtcdSettings:
        """How to reach it; unsafe versions are allowed unless said otherwise."""
        options = {"allow_unsafe_version": True, **settings}
        return EtcdSettings((self.endpoint,), **options)  # type: ignore[arg-type]  # a test names real fields

    def store(self, **settings: str | bool) -> EtcdKeyValueStore:
        """A driver, not open yet."""
        return EtcdKeyValueStore(self.settings(**settings), LoopClock(), SystemEntropy())


@dataclass(frozen=True)
class StoreUnderTest:
    """A store and a corner of it that nobody else uses."""

    kv: KeyValueStore
    keys: Keys

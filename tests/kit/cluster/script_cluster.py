"""A real cluster for process tests and benchmarks: started by the scripts in a run directory of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Self

import httpx

from airflow_flinklike.client import ClientTls, FlinklikeClient
from runtime.entrypoint.control.embedded_tls import EmbeddedTls
from runtime.security.cluster_key import read_cluster_key
from runtime.security.internal import derived_credential
from runtime.security.tokens import ClusterToken
from tests.kit.cluster.cluster_certificates import ClusterCertificates
from tests.kit.host.process_tree import carrying, cpu_seconds
from tests.kit.spark.class_archive import share

ROOT = Path(__file__).resolve().parents[3]
TEST_RUN = "SPARK_TEST_RUN"
"""By which slots and Spark are found: variables of the cluster itself do not get there."""


def free_port() -> int:
    """A port that is free now, and that the kernel gives to no program that asks for any."""
    for port in SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    message = "no free port"
    raise RuntimeError(message)


class ScriptCluster:
    """start-cluster.sh in `with`, stop-cluster.sh at its end. Options are those of -D.

    Its Spark uses the class archive in that directory, if there is one; without, the options say what it does.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        masters: int = 1,
        job_masters: int = 2,
        workers: int = 1,
        class_archive: Path | None = None,
    ) -> None:
        self.run = Path(tempfile.mkdtemp(prefix="flinklike-"))
        self.ports = [free_port() for _ in range(masters)]
        self.certificates: ClusterCertificates | None = None
        """Where REST and the links between processes are encrypted."""
        conf = self.run / "conf"
        shutil.copytree(ROOT / "conf", conf)
        lines = [f"localhost:{port}\n" for port in self.ports]
        (conf / "masters").write_text("".join(lines) if masters > 1 else "localhost\n")
        (conf / "JOB_MASTERS").write_text("localhost\n" * job_masters)
        (conf / "workers").write_text("localhost\n" * workers)
        self.environment = {
            **os.environ,
            "FLINKLIKE_RUN_DIR": str(self.run / "run"),
            TEST_RUN: str(self.run / "run"),
            "FLINKLIKE_CONF_DIR": str(conf),
            "FLINKLIKE_IDENT_STRING": "test",
            "FLINKLIKE_ADDRESS": ",".join(self.urls),
        }
        shared = share(class_archive, self.run / "run") if class_archive else {}
        self._options = {"rest.port": str(self.port), "restart-strategy.type": "none", **options, **shared}

    def add_options(self, options: Mapping[str, str]) -> None:
        """Before it starts: what follows from its directory."""
        self._options |= options

    @property
    def port(self) -> int:
        """Of the first JobManager's REST."""
        return self.ports[0]

    @property
    def url(self) -> str:
        """The first JobManager's REST."""
        return self.urls[0]

    @property
    def urls(self) -> list[str]:
        """REST of every JobManager, in the order of conf/masters."""
        scheme = "http" if self.certificates is None else "https"
        return [f"{scheme}://127.0.0.1:{port}" for port in self.ports]

    def encrypt(self) -> ClusterCertificates:
        """Before it starts: make certificates, and ask for them in conf/, from clients of REST too."""
        self.certificates = made = ClusterCertificates.new(self.run / "certs")
        with (self.run / "conf" / "config.yaml").open("a") as file:
            file.write("".join(f"\n{key}: {value}" for key, value in made.options().items()) + "\n")
        self.environment["FLINKLIKE_ADDRESS"] = ",".join(self.urls)
        return made

    @property
    def token(self) -> str:
        """The cluster's token."""
        return (self.run / "run" / "token").read_text().strip()

    @property
    def credential(self) -> ClusterToken:
        """What its processes show each other."""
        return derived_credential(read_cluster_key(self.run / "run" / "cluster-key"))

    @property
    def dynamic(self) -> list[str]:
        """The -D arguments of every script of this cluster."""
        return [argument for key, value in self._options.items() for argument in ("-D", f"{key}={value}")]

    def script(
        self, name: str, *arguments: str, timeout: float = 240, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a script of bin/ for this cluster; its output is captured."""
        command = [str(ROOT / "bin" / name), *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False, cwd=cwd
        )

    def cli(self, *arguments: str, timeout: float = 200, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run bin/flinklike against this cluster."""
        return self.script("flinklike", *arguments, timeout=timeout, cwd=cwd)

    def start(self) -> str:
        """start-cluster.sh; what it said. Raises RuntimeError with the logs when it fails."""
        done = self.script("start-cluster.sh", *self.dynamic)
        if done.returncode != 0:
            message = f"start-cluster.sh failed:\n{done.stdout}{done.stderr}\n{self.logs()}"
            raise RuntimeError(message)
        return done.stdout

    def start_task_manager(self) -> None:
        """One more, or another one in its place."""
        done = self.script("taskmanager.sh", "start", *self.dynamic)
        assert done.returncode == 0, done.stdout + done.stderr

    def stop(self) -> subprocess.CompletedProcess[str]:
        """stop-cluster.sh; the run directory stays."""
        return self.script("stop-cluster.sh", *self.dynamic)

    def processes(self) -> dict[int, str]:
        """All living processes that this cluster has started, by pid with their command line."""
        run = self.environment["FLINKLIKE_RUN_DIR"]
        return {**carrying("FLINKLIKE_RUN_DIR", run), **carrying(TEST_RUN, run)}

    def __enter__(self) -> Self:
        try:
            self.start()
        except RuntimeError:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop it and delete its directory. AssertionError when that fails or a process outlives it; none stays."""
        done = self.stop()
        left = self.processes()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.run, ignore_errors=True)
        assert done.returncode == 0, f"stop-cluster.sh: {done.stdout}{done.stderr}"
        assert not left, f"processes that stop-cluster.sh left behind: {left}"

    def logs(self, lines: int = 30) -> str:
        """The ends of all process logs."""
        found = sorted((self.run / "run" / "log").glob("*.*"))
        return "\n".join(f"--- {path.name}\n" + "\n".join(path.read_text().splitlines()[-lines:]) for path in found)

    def pids(self) -> dict[str, list[int]]:
        """Root pids by role, from the pid files."""
        roles: dict[str, list[int]] = {}
        for path in (self.run / "run" / "pid").glob("*.pid"):
            role = path.stem.rpartition("-")[2]
            roles[role] = [int(line.split()[0]) for line in path.read_text().splitlines()]
        if self._etcd_state.exists():
            roles["etcd"] = [int(json.loads(self._etcd_state.read_text())["pid"])]
        return roles

    @property
    def _etcd_state(self) -> Path:
        return self.run / "run" / "etcd.json"

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by role."""
        return {role: cpu_seconds(pids) for role, pids in sorted(self.pids().items())}

    def etcd_metrics(self) -> dict[str, float]:
        """etcd's counters by name."""
        endpoint = json.loads(self._etcd_state.read_text())["endpoint"]
        context = EmbeddedTls.beside(self.run / "run" / "etcd").client_context()
        with urllib.request.urlopen(f"https://{endpoint}/metrics", timeout=5, context=context) as answer:
            lines = answer.read().decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    def stored_files(self) -> set[Path]:
        """What lies in the cluster's storage: every file there was synced before it was acknowledged."""
        return {path for path in (self.run / "run" / "storage").rglob("*") if path.is_file()}

    def connect(self, *, retry_for: float = 60.0) -> FlinklikeClient:
        """The product's own client; close it."""
        tls = ClientTls() if self.certificates is None else self.certificates.of_client()
        return FlinklikeClient(self.urls, self.token, retry_for=retry_for, tls=tls)

    def client(self, connections: int = 64) -> httpx.AsyncClient:
        """An HTTP client with the token; close it."""
        return httpx.AsyncClient(
            base_url=self.url,
            headers={"authorization": f"Bearer {self.token}"},
            timeout=120,
            # plain http: loading certificates takes longer than a submit
            verify=False if self.certificates is None else self.certificates.context(),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )

"""JobManager and JobMaster processes as real OS processes over a real etcd, in a run directory of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from runtime.security.cluster_key import read_cluster_key
from runtime.security.internal import derived_credential
from runtime.security.tokens import ClusterToken

ROOT = Path(__file__).resolve().parents[3]
JOB_MANAGER = "runtime.entrypoint.job_manager"
JOB_MASTER = "jobmaster_process"


@dataclass
class OsProcess:
    """One started process; `facts` is what its ready file says."""

    popen: subprocess.Popen[bytes]
    log: Path
    facts: dict[str, str] = field(default_factory=dict)

    def terminate(self, timeout: float = 100.0) -> int:
        """SIGTERM; the exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(timeout)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.popen.kill()
        self.popen.wait(100)

    def output(self) -> str:
        """What it has said so far."""
        return self.log.read_text(errors="replace")


class OsCluster:
    """Starts processes; `stop` ends all that are left. `options` are those of every process."""

    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        self.directory = directory
        self._options = {"restart-strategy.type": "none", **options}
        self._processes: list[OsProcess] = []
        self._conf = directory / "conf"
        self._conf.mkdir()
        (self._conf / "config.yaml").write_text("")

    @property
    def credential(self) -> ClusterToken:
        """What its processes show each other."""
        return derived_credential(read_cluster_key(self.directory / "run" / "cluster-key"))

    @property
    def token(self) -> str:
        return (self.directory / "run" / "token").read_text().strip()

    def launch(self, module: str, *python_options: str, **options: str) -> OsProcess:
        """Start a process and do not wait."""
        number = len(self._processes)
        environment = {
            **os.environ,
            "FLINKLIKE_CONF_DIR": str(self._conf),
            "FLINKLIKE_RUN_DIR": str(self.directory / "run"),
            "FLINKLIKE_READY_FILE": str(self.directory / f"{number}.ready"),
            "PYTHONPATH": str(ROOT),
        }
        given = {**self._options, **{key.replace("__", "."): value for key, value in options.items()}}
        arguments = [text for key, value in given.items() for text in ("-D", f"{key}={value}")]
        log = self.directory / f"{number}.log"
        with log.open("wb") as out:
            popen = subprocess.Popen(
                [sys.executable, *python_options, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.directory,
            )
        process = OsProcess(popen, log)
        self._processes.append(process)
        return process

    def start(self, module: str, **options: str) -> OsProcess:
        """Start a process and wait until it reports ready."""
        process = self.launch(module, **options)
        ready = self.directory / f"{len(self._processes) - 1}.ready"
        deadline = time.monotonic() + 100.0
        while not ready.exists():
            if process.popen.poll() is not None or time.monotonic() > deadline:
                message = f"{module} is not ready:\n{process.output()}"
                raise AssertionError(message)
            time.sleep(0.02)
        process.facts = json.loads(ready.read_text())
        return process

    def stop(self) -> None:
        """End everything that was started."""
        for process in self._processes:
            if process.popen.poll() is None:
                process.kill()

    def client(self, job_manager: OsProcess) -> httpx.AsyncClient:
        """A client of its REST endpoint."""
        return httpx.AsyncClient(
            base_url=f"http://{job_manager.facts['address']}",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=30.0,
        )


async def get_json(client: httpx.AsyncClient, path: str) -> Any:
    """The body of a GET that must succeed."""
    answer = await client.get(path)
    assert answer.status_code == 200, (path, answer.status_code, answer.text)
    return answer.json()

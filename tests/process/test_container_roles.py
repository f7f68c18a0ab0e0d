"""bin/container.sh: what a container runs, by real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ROOT, free_port
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process]

ENTRY = str(ROOT / "bin" / "container.sh")


class Container:
    """The environment of one container, without one."""

    def __init__(self, folder: Path, port: int) -> None:
        self.run = folder / "volume" / "run"
        self.secrets = folder / "secret"
        self.secrets.mkdir()
        (self.secrets / "token").write_text("a-token-of-thirty-two-characters-or-more\n")
        (self.secrets / "token").chmod(0o440)
        conf = folder / "conf"
        conf.mkdir()
        options = {
            "jobmanager.rpc.port": port,
            "rest.port": free_port(),
            "security.token-file": "secrets/token",
            "taskmanager.spark.enabled": "false",
        }
        (conf / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in options.items()))
        self.environment = {
            **os.environ,
            "FLINKLIKE_RUN_DIR": str(self.run),
            "FLINKLIKE_CONF_DIR": str(conf),
            "FLINKLIKE_CONTAINER_ADDRESS": "127.0.0.1",
            "FLINKLIKE_SECRETS_FROM": str(self.secrets),
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        devnull = subprocess.DEVNULL
        return subprocess.Popen([ENTRY, *words], env=self.environment, stdout=devnull, stderr=devnull)

    def health(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run([ENTRY, "health"], env=self.environment, capture_output=True, text=True, check=False)

    @property
    def is_healthy(self) -> bool:
        return self.health().returncode == 0


@pytest.fixture
def job_manager(tmp_path: Path) -> Iterator[tuple[Container, subprocess.Popen[bytes]]]:
    folder = tmp_path / "jobmanager"
    folder.mkdir()
    container = Container(folder, free_port())
    assert "nothing is not ready" in container.health().stderr
    process = container.start("jobmanager")
    try:
        reached(lambda: container.is_healthy, "the JobManager is ready", every=0.5)
        yield container, process
    finally:
        process.kill()
        process.wait()


def test_a_container_is_healthy_while_its_process_runs(job_manager: tuple[Container, subprocess.Popen[bytes]]) -> None:
    container, process = job_manager
    assert (container.run / "secrets" / "token").stat().st_mode & 0o777 == 0o600
    process.send_signal(signal.SIGSTOP)
    assert f"jobmanager (pid {process.pid}) does not run: T" in container.health().stderr
    process.send_signal(signal.SIGCONT)
    assert container.is_healthy
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143, "the signal reaches the process itself"
    assert not container.is_healthy


def test_a_task_manager_drains_when_its_container_is_stopped(
    job_manager: tuple[Container, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    first, _ = job_manager
    folder = tmp_path / "taskmanager"
    folder.mkdir()
    container = Container(folder, 0)
    for name in ("token", "cluster-key"):  # as the secret of a pod has them
        path = first.run / ("secrets/token" if name == "token" else name)
        (container.secrets / name).unlink(missing_ok=True)
        (container.secrets / name).write_bytes(path.read_bytes())
    config = Path(first.environment["FLINKLIKE_CONF_DIR"]) / "config.yaml"
    own = Path(container.environment["FLINKLIKE_CONF_DIR"]) / "config.yaml"
    own.write_text(config.read_text() + "security.cluster-key-file: secrets/cluster-key\n")
    process = container.start("taskmanager", "-D", "taskmanager.numberOfTaskSlots=1")
    try:
        reached(lambda: container.is_healthy, "the TaskManager is ready", every=0.5)
        stop = str(ROOT / "bin" / "taskmanager.sh")
        done = subprocess.run([stop, "drain"], env=container.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()

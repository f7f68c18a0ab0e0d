"""A real `airflow standalone` with a home of its own. Tests start it, kill and restart its parts, and stop it.

Its parts and their children are found by their session, since they change their titles, which overwrite their
environment.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.kit.cluster.script_cluster import ROOT, free_port
from tests.kit.host.levels import reached
from tests.kit.host.process_tree import tree

PARTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
START_TIMEOUT = 300.0
STOP_TIMEOUT = 30.0
QUICK = {
    "AIRFLOW__CORE__PARALLELISM": "4",
    "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "0",
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "45",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
}
"""Airflow notices sooner what has died, and is patient with a busy machine; a person's doing it notices as ever."""


class AirflowStandalone:
    """An Airflow: `begin`, `wait_healthy`, `stop`, or `with` for all three.

    `files` are its DAG files. `environment` are further variables, connections for instance. `programs` is the folder
    of the `airflow` program of another version.
    """

    def __init__(self, files: Iterable[Path], environment: Mapping[str, str], *, programs: Path | None = None) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="flinklike-standalone-"))
        self.port = free_port()
        self.log = self.home / "standalone.log"
        dags = self.home / "dags"
        dags.mkdir()
        for file in files:
            shutil.copy(file, dags)
        self._environment = {**_inherited(), **self._settings(), **QUICK, **environment}
        self._programs = programs or Path(sys.executable).parent
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """The address of the REST API."""
        return f"http://127.0.0.1:{self.port}"

    def _settings(self) -> dict[str, str]:
        base = f"http://127.0.0.1:{self.port}"
        return {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.home / "dags"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "tests.kit.airflow.database.CONNECT_ARGS",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{base}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": base,
            "AIRFLOW__API__WORKERS": "1",  # several, of Airflow 3.0, kill each other on a busy machine
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            # A file whose parsing takes too long has no DAGs any more until it is parsed again.
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
            "AIRFLOW__DAG_PROCESSOR__STALE_DAG_THRESHOLD": "600",
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "240",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }

    # --- life ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start Airflow without waiting."""
        self._launch("standalone")

    def start(self, part: str) -> None:
        """Restart a killed part: 'scheduler' or 'triggerer'. `standalone` does not restart its parts."""
        self._launch(part)

    def _launch(self, command: str) -> None:
        path = os.pathsep.join((str(self._programs), self._environment.get("PATH", os.defpath)))
        with self.log.open("ab") as sink:
            self._started.append(
                subprocess.Popen(
                    [str(self._programs / "airflow"), command],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env={**self._environment, "PATH": path},
                    cwd=self.home,
                    start_new_session=True,
                )
            )

    def wait_healthy(self) -> None:
        """Wait until all parts are healthy. Raises AssertionError with the end of the log."""
        try:
            reached(self._is_healthy, "airflow standalone is healthy", timeout=START_TIMEOUT)
        except AssertionError as error:
            error.add_note(self.said())
            raise

    def _is_healthy(self) -> bool:
        ended = [one.args for one in self._started[:1] if one.poll() is not None]
        assert not ended, f"it has ended: {self.said()}"
        return self.healthy() == set(PARTS)

    def healthy(self) -> set[str]:
        """The healthy parts."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/monitor/health", timeout=10) as answer:
                health = json.load(answer)
        except (OSError, ValueError):
            return set()
        return {part for part in PARTS if (health.get(part) or {}).get("status") == "healthy"}

    def said(self, lines: int = 60) -> str:
        """The end of Airflow's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def stop(self) -> None:
        """Send SIGINT, which ends the parts too; kill the rest of the sessions, and delete the home."""
        for one in reversed(self._started):
            one.send_signal(signal.SIGINT)
        for one in self._started:
            with suppress(subprocess.TimeoutExpired):
                one.wait(STOP_TIMEOUT)
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for one in self._started:
            one.wait(STOP_TIMEOUT)
        reached(lambda: not self.processes(), "nothing is left of it")
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Self:
        self.begin()
        try:
            self.wait_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # --- its processes ------------------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """All living processes of this Airflow."""
        sessions = {one.pid for one in self._started}
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(process.pid) in sessions and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def part(self, name: str) -> psutil.Process:
        """The main process of a part: 'scheduler' or 'triggerer'."""
        found = [process for process in self.processes() if _runs(process, name) and self._is_main(process)]
        assert len(found) == 1, (name, [" ".join(process.cmdline()) for process in self.processes()])
        return found[0]

    def _is_main(self, process: psutil.Process) -> bool:
        """Children of a part have the same command line."""
        with suppress(psutil.NoSuchProcess):
            return process.ppid() == self._started[0].pid or process.pid in {one.pid for one in self._started}
        return False

    def kill(self, name: str, *, with_children: bool) -> None:
        """Send SIGKILL to a part, with its children or alone."""
        main = self.part(name)
        for process in tree(main.pid) if with_children else [main]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        _wait_for_end(main, name)

    def restart(self, name: str) -> None:
        """Restart a part as an upgrade does: SIGTERM, then a new one."""
        main = self.part(name)
        main.terminate()
        try:
            _wait_for_end(main, name)
        finally:
            self.start(name)
        reached(lambda: name in self.healthy(), f"another {name} is there", timeout=START_TIMEOUT)


def _wait_for_end(process: psutil.Process, name: str) -> None:
    """True for a zombie, since `standalone` does not reap its parts."""
    reached(
        lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE,
        f"{name} is dead",
        timeout=2 * STOP_TIMEOUT,
    )


def _inherited() -> dict[str, str]:
    """The environment without variables of Airflow, and with the import path of this process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    found = [part for part in kept.get("PYTHONPATH", "").split(os.pathsep) if part]
    return {**kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(ROOT), *found]))}


def _runs(process: psutil.Process, name: str) -> bool:
    """`python .../bin/airflow NAME`."""
    with suppress(psutil.NoSuchProcess):
        command = process.cmdline()
        return len(command) >= 3 and Path(command[1]).name == "airflow" and command[2] == name
    return False

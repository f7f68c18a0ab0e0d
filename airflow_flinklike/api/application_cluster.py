"""ApplicationCluster: one job as its own cluster, as a child process of this one (application mode).

The cluster ends when its standard input does: it never outlives this process for longer than its orderly stop takes.
It needs the extra `cluster`, in the Python that runs it.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from airflow_flinklike.client import ClientTls
from airflow_flinklike.exceptions import LocalClusterError
from runtime.common.json_text import parse_json

_MODULE = "runtime.entrypoint.control"
_OPTIONS: Mapping[str, str] = {
    "high-availability.type": "none",
    "high-availability.etcd.embedded": "false",
    "jobmanager.rpc.port": "0",
    "rest.port": "0",
    "resourcemanager.driver": "process",
    # There is no earlier leader whose TaskManagers could register.
    "resourcemanager.previous-worker.recovery.timeout": "0 ms",
}
_ENDING: Mapping[str, str] = {
    # The result is read first, and then the process is ended.
    "execution.shutdown-on-application-finish": "false",
    "execution.shutdown-on-attached-exit": "true",
}
_LINES_MAX = 20
_LOOK_SECONDS = 0.1
_SCRIPTS_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ApplicationJob:
    """The job, as bin/standalone-job.sh takes it. `options` are those of `flinklike run`, `directory` the working one.

    `configuration`: options of the cluster. `python`: the interpreter that runs it, "" for this one. `cluster_id`: its
    own name, by which the driver docker knows its containers.
    """

    target: str
    directory: Path
    options: Sequence[str] = ()
    arguments: Sequence[str] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    conf_directory: str = ""
    python: str = ""
    cluster_id: str = field(default_factory=lambda: f"application-{secrets.token_hex(16)}")

    def settings(self) -> dict[str, str]:
        """The options of the cluster. Raises LocalClusterError for those that are ours."""
        if taken := sorted(_ENDING.keys() & self.configuration.keys()):
            message = f"{', '.join(taken)}: the cluster of a task ends with the task: leave this out"
            raise LocalClusterError(message)
        base = {} if self.conf_directory else {**_OPTIONS, "high-availability.cluster-id": self.cluster_id}
        return {**base, **self.configuration, **_ENDING}

    def words(self) -> list[str]:
        """The command line of the cluster."""
        settings = [word for key, value in self.settings().items() for word in ("-D", f"{key}={value}")]
        behind = ["--", *self.arguments] if self.arguments else []
        head = [self.python or sys.executable, "-P", "-m", _MODULE, "standalonejob", "start-foreground"]
        return [*head, *settings, "--job", self.target, *self.options, *behind]


class ApplicationCluster:
    """The cluster of one job, with its files below `directory`. Start it, wait until it is ready, and end it."""

    def __init__(self, job: ApplicationJob, directory: Path) -> None:
        self._job = job
        self._directory = directory
        self._run = directory / "run"
        self._log = directory / "cluster.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._facts: Mapping[str, str] = {}

    def start(self) -> None:
        """Start it, and return at once. Raises LocalClusterError for what cannot be started."""
        words, environment = self._job.words(), self._environment()
        with self._log.open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    words,
                    cwd=self._job.directory,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # signals for the group of this process are not for the cluster
                )
            except OSError as error:
                message = f"the cluster of the job cannot be started: {error}"
                raise LocalClusterError(message) from error

    def wait_ready(self) -> None:
        """Return when it has accepted the job. Raises LocalClusterError, with the cause."""
        ready = self._run / "pid" / "standalonejob-0.json"
        while not self._facts:
            self.check()
            with suppress(OSError, ValueError):
                self._facts = {str(key): str(value) for key, value in dict(parse_json(ready.read_bytes())).items()}
            _ = self.has_ended(_LOOK_SECONDS)

    @property
    def address(self) -> str:
        """REST of the cluster, once it is ready."""
        return self._facts["url"]

    @property
    def tls(self) -> ClientTls:
        """What a client needs to know of its certificates."""
        return ClientTls(self._facts.get("ca", ""))

    @property
    def token(self) -> str | None:
        """Of the cluster; None without authentication."""
        named = self._job.configuration.get("security.token-file", "token")
        try:
            return (self._run / named).read_text(encoding="utf-8").strip().partition("\n")[0]
        except FileNotFoundError:
            return None

    def check(self) -> None:
        """Raises LocalClusterError when it has ended, with the end of its log."""
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            message = f"the cluster of the job has ended with exit code {code}:\n{self.last_lines()}"
            raise LocalClusterError(message)

    def last_lines(self) -> str:
        """The end of what it has said."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([line for line in lines if line.strip()][-_LINES_MAX:])

    def begin_end(self) -> None:
        """Have it stop: the job is cancelled if it runs, and its TaskManagers end. Returns at once; idempotent."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def has_ended(self, within: float) -> bool:
        """True if the process has ended within so many seconds."""
        if self._process is None:
            return True
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End whatever has not ended. Raises LocalClusterError."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        words = [self._job.python or sys.executable, "-P", "-m", _MODULE, "stop-cluster"]
        done = subprocess.run(
            words, env=self._environment(), capture_output=True, text=True, timeout=_SCRIPTS_SECONDS, check=False
        )
        if done.returncode:
            message = f"what the cluster of the job has started does not end: {done.stderr}"
            raise LocalClusterError(message)

    def _environment(self) -> dict[str, str]:
        """That of this process, without the settings of other clusters; this Python's own path for the job's module."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("FLINKLIKE_")}
        if not self._job.python:
            inherited["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        conf = Path(self._job.conf_directory or self._directory / "conf")
        if not self._job.conf_directory:
            conf.mkdir(exist_ok=True)
            (conf / "config.yaml").touch()
        own = {"FLINKLIKE_CONF_DIR": str(conf), "FLINKLIKE_RUN_DIR": str(self._run)}
        return {**inherited, **self._job.environment, **own}

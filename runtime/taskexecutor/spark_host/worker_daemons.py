"""Python worker daemons that a job has for itself: children of the JVM, told apart by their environment.

Spark keeps such a daemon for the JVM's life (46 MB each), so it is ended with its job (pitfall 2).
"""

from __future__ import annotations

import contextlib
import os
import signal

import psutil

from runtime.taskexecutor.worker_protocol.worker_environment import JOB_ID_VARIABLE


def daemons_of(jvm_pid: int, job_id: str) -> list[int]:
    """The JVM's children whose environment names the job."""
    found: list[int] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(jvm_pid).children():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if child.environ().get(JOB_ID_VARIABLE) == job_id:
                    found.append(child.pid)
    return found


def kill_daemons(jvm_pid: int, job_id: str) -> int:
    """Kill the job's daemons with their workers (each leads a process group); how many daemons there were."""
    daemons = daemons_of(jvm_pid, job_id)
    for daemon in daemons:
        with contextlib.suppress(psutil.NoSuchProcess):
            for leader in (*psutil.Process(daemon).children(), psutil.Process(daemon)):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(leader.pid, signal.SIGKILL)
    return len(daemons)

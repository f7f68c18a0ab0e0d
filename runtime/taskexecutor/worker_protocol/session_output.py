"""Where Python workers print: into the files of the attempt for whose session they work (R22).

A link in the session's directory leads to the directory of the attempt's logs. Each task of a worker looks where it
leads now. The files are bounded where they are read and kept, so no writer waits for a reader. Standard library only:
workers import this.
"""

from __future__ import annotations

import io
import os
import sys

from runtime.system import linux
from runtime.taskexecutor.worker_protocol.worker_environment import LOGS_LINK

_STREAMS = (("stdout", 1), ("stderr", 2))
_AT_ONCE = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""Of what user code has put into the place of a file, the open fails at once: a pipe, a link, a file under a lease."""
_CAPTURED_BY_SPARK = "PYSPARK_SPARK_SESSION_UUID"
"""Set where the job has `spark.sql.pyspark.worker.logging.enabled`: Spark reads what comes by stdout."""


def print_for_session(directory: str) -> None:
    """All that this process and its children print from now on is in the output of the session's attempt.

    Where that cannot be opened it stays in the JVM's log, as does what no session owns.
    """
    flush_output()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Whole lines, as in slots: Spark has Python write each part of a line by itself.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=False)
    for name, descriptor in _STREAMS:
        if name == "stdout" and _CAPTURED_BY_SPARK in os.environ:
            continue
        try:
            opened = os.open(f"{directory}/{LOGS_LINK}/{name}", _AT_ONCE)
        except FileNotFoundError:  # the session has ended, and with it the wish for its output
            continue
        except OSError as error:
            sys.stderr.write(f"what Python functions print to {name} stays in the log of Spark's JVM: {error}\n")
            continue
        os.dup2(opened, descriptor)
        os.close(opened)


def flush_output() -> None:
    """Write what was printed without the end of its line, before Spark hears that the task has ended."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError, OSError):  # user code may have put anything there
            continue
    linux.flush_c_streams()

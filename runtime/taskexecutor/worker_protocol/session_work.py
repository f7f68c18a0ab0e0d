"""Makes a process work for one session: where its job works (R24), with the session's mark (R29), and output (R22).

Spark's Python workers load this module.
"""

from __future__ import annotations

import os
import sys

from runtime.taskexecutor.worker_protocol import session_marks
from runtime.taskexecutor.worker_protocol.session_output import print_for_session


def enter_working_directory(link: str, otherwise: str) -> None:
    """Work where the job works: workers are shared by jobs that bring no files, one task after the other (R24)."""
    try:
        os.chdir(link or otherwise)
    except FileNotFoundError:  # the job has ended, and its directory with it
        os.chdir(otherwise)
    except OSError as error:
        # A worker of spark-submit is in its directory already, and goes on whatever becomes of it.
        sys.stderr.write(f"Spark's Python worker cannot work in its job's working directory: {error}\n")
        os.chdir(otherwise)


def begin_for(session_id: str, link: str, otherwise: str) -> None:
    """All that this process does from now on is the session's, is done where its job works, and is printed there."""
    if session_id and link:
        print_for_session(os.path.dirname(link))  # noqa: PTH120 - pathlib would be one more import in every daemon
        mark_task(session_id, link)
    enter_working_directory(link, otherwise)


def mark_task(session_id: str, link: str) -> None:
    """Let all that the task starts be known as its session's (R29)."""
    try:
        session_marks.work_for(session_id, os.path.dirname(link))  # noqa: PTH120 - as above
    except (OSError, ValueError) as error:
        sys.stderr.write(f"what Python functions of session {session_id} start cannot be told from others': {error}\n")

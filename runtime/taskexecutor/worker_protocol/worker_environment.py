"""Names that the JVM hands to Spark's Python workers, as variables of a daemon or as local properties of a task."""

from __future__ import annotations

DAEMON_MODULE = "runtime.taskexecutor.python_workers.worker_daemon"
JOB_DIRECTORY_VARIABLE = "FLINKLIKE_JOB_DIRECTORY"
JOB_ID_VARIABLE = "FLINKLIKE_JOB_ID"
SESSION_PROPERTY = "flinklike.session"
"""Local property of Spark that names the session of a task."""
WORKING_DIRECTORY_PROPERTY = "flinklike.working-directory"
"""Local property of Spark that names a link to the job's working directory; each task brings it along (R24)."""
WORKING_DIRECTORY_LINK = "job"
"""The name of that link, in the directory of the session."""
LOGS_LINK = "logs"
"""The name of a link to the logs of the session's attempt, beside the other; the JVM has it in `SlotOutput.java`."""

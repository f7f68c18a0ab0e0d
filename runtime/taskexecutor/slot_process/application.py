"""Java and Scala applications: spark-submit's own main class, in a JVM below this process.

The JVM writes to the attempt's stdout and stderr, works in the job's directory, and dies with this process. Its exit
code is the attempt's end.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from runtime.common.spark_conf import APP_NAME, is_ignored
from runtime.common.spark_environments import HEAP, JARS
from runtime.jobgraph.graph import JarCode
from runtime.system.linux import die_with_parent
from runtime.taskexecutor.driver_jvm.command import UNWANTED, properties_text
from runtime.taskexecutor.driver_jvm.last_exception import last_exception
from runtime.taskexecutor.slot_process.causes import ApplicationError, ApplicationLostError
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_process.script import artifact_file
from runtime.taskexecutor.slot_protocol.wire import WorkOrder
from runtime.taskexecutor.spark_protocol.sessions import SlotSession

_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_FILES = "spark.files"
_LOOK_MILLIS = 200
_STDERR_READ_MAX = 256 << 10
_HEAP_FULL = "java.lang.OutOfMemoryError"
_EXIT_OF_FULL_HEAP = 3


def application_file(code: JarCode, order: WorkOrder) -> Path:
    """The jar under its own name in the job's directory."""
    return artifact_file(code.jar, order.code_files, order.job_directory)


def run_application(code: JarCode, jar: Path, order: WorkOrder, session: SlotSession, channel: Channel) -> None:
    """Run it to its end. Raises ApplicationError unless its exit code is 0, and
    ApplicationLostError when something outside has ended it. A cancel asks the JVM to end."""
    conf = application_conf(order, session.conf)
    properties = Path(session.directory) / "spark.properties"
    properties.touch(mode=0o600)
    properties.write_text(properties_text(conf), encoding="ascii")
    main_class = ["--class", code.main_class] if code.main_class else []
    # What only Hadoop reads is not here: spark-submit fetches it.
    application = str(jar) if jar.exists() else str(code.jar.url)
    command = [*session.command, _SUBMIT, "--properties-file", str(properties), *main_class, application, *code.args]
    stderr = Path(order.log_directory) / "stderr"
    begin = stderr.stat().st_size
    inherited = {key: value for key, value in os.environ.items() if key not in UNWANTED}
    with subprocess.Popen(
        command,
        env={**inherited, **session.environment},
        stdin=subprocess.DEVNULL,
        preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - no thread of this process holds a lock
    ) as process:
        _wait(process, channel)
    if process.returncode in _ENDED_FROM_OUTSIDE and not channel.is_cancelled:
        message = f"the JVM of the application was ended by {_ENDED_FROM_OUTSIDE[process.returncode]}"
        raise ApplicationLostError(message)
    if process.returncode:
        raise ApplicationError(failure_of(process.returncode, _end_of(stderr, begin), conf))


def application_conf(order: WorkOrder, base: Mapping[str, str]) -> dict[str, str]:
    """The conf of the application: the TaskManager's (`base`), and over it the job's, with its jars and files."""
    job: dict[str, str] = json.loads(order.spark_conf)
    conf = {APP_NAME: order.job_name, **base}
    conf.update({key: value for key, value in job.items() if not is_ignored(key) or key == APP_NAME})
    files = [str(Path(order.job_directory) / name) for name in order.brought]
    for key, paths in ((JARS, order.jars), (_FILES, [path for path in files if Path(path).is_file()])):
        if named := [part for part in (conf.get(key, ""), *paths) if part]:
            conf[key] = ",".join(named)
    return conf


def _wait(process: subprocess.Popen[bytes], channel: Channel) -> None:
    is_asked = False
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while not poll.poll(_LOOK_MILLIS):
            if channel.is_cancelled and not is_asked:
                is_asked = True
                process.terminate()
    finally:
        os.close(descriptor)


def _end_of(stderr: Path, begin: int) -> str:
    """What the application has written to stderr last."""
    with stderr.open("rb") as file:
        file.seek(max(begin, file.seek(0, os.SEEK_END) - _STDERR_READ_MAX))
        return file.read(_STDERR_READ_MAX).decode(errors="replace")


_ENDED_FROM_OUTSIDE = {
    -signal.SIGKILL: "SIGKILL, not by this TaskManager: most likely by the machine's out-of-memory killer",
    **{
        128 + number: f"{number.name}, which somebody has sent"
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    },
}
"""Exit codes of a JVM that has obeyed a signal are above 128."""


def failure_of(code: int, written: str, conf: Mapping[str, str]) -> str:
    """One sentence: the exit code, and the innermost cause of the last exception that no code has caught."""
    if code < 0:
        return f"the JVM of the application was ended by signal {-code}"
    if code == _EXIT_OF_FULL_HEAP and _HEAP_FULL in written:
        return f"the heap of the application was full ({HEAP} is {conf.get(HEAP, '')}): give it more"
    thrown = last_exception(written)
    return f"the application ended with exit code {code}{f': {thrown}' if thrown else ''}"

"""standalone-job.sh: start, start-foreground and stop of the cluster of one job (application mode)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from runtime.common.errors import InvalidInputError
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.loading import load
from runtime.config.options.high_availability import ETCD_EMBEDDED, ETCD_EMBEDDED_PORT
from runtime.config.options.jobmanager import SHUTDOWN_ON_ATTACHED_EXIT
from runtime.entrypoint.application import application_problems
from runtime.entrypoint.control.cluster import ClusterControl
from runtime.entrypoint.control.daemon import JOBMANAGER, STANDALONEJOB, START_TIMEOUT, Daemon, Starting
from runtime.entrypoint.control.job_command import JOB_OPTION, JobCommand, parse_job_command
from runtime.entrypoint.control.pending import DaemonError, wait_all
from runtime.entrypoint.control.run_directory import prepare_run_directory

USAGE = (
    f"Usage: standalone-job.sh (start|start-foreground) {JOB_OPTION} TARGET [-D key=value ...] "
    "[options of flinklike run] [-- arguments of a script]\n"
    "       standalone-job.sh stop\n"
)


class JobDaemon(Daemon):
    """The process of an application: its command line has the job too."""

    def __init__(self, job: JobCommand, layout: Layout, environment: Mapping[str, str], out: TextIO) -> None:
        super().__init__(STANDALONEJOB, layout, environment, out)
        self._job = job

    def command(self, dynamic: Sequence[str]) -> list[str]:
        """The command line of the process."""
        return [*super().command(dynamic), *self._job.words()]

    def show_output(self, started: Starting) -> None:
        """What the process has said until it was ready: which job it is, and where it is shown."""
        for line in started.out_file.read_text(encoding="utf-8", errors="replace").splitlines():
            self._say(line)


def run_standalone_job(arguments: Sequence[str], environment: Mapping[str, str], out: TextIO) -> int:
    """The script. Returns its exit code; `start-foreground` never returns. Raises FlinklikeError."""
    layout = Layout.from_environment(environment)
    verb, *words = arguments or ("",)
    if verb == "stop":
        if words:
            message = f"stop takes no arguments: {' '.join(words)}"
            raise InvalidInputError(message)
        Daemon(STANDALONEJOB, layout, environment, out).stop_last()
        return 0
    starts: dict[str, Callable[[JobDaemon], None]] = {"start": _start, "start-foreground": _become}
    if verb not in starts:
        out.write(USAGE)
        return 1
    job = parse_job_command(words, Path.cwd())
    with ExitStack() as undo:
        configuration = _prepare(job, layout, environment, out, undo)
        if verb == "start" and configuration.get(SHUTDOWN_ON_ATTACHED_EXIT):
            message = (
                f"{SHUTDOWN_ON_ATTACHED_EXIT.key} is for start-foreground: the process of start outlives the script"
            )
            raise InvalidInputError(message)
        starts[verb](JobDaemon(job, layout, environment, out))
        undo.pop_all()
    return 0


def _prepare(
    job: JobCommand, layout: Layout, environment: Mapping[str, str], out: TextIO, undo: ExitStack
) -> Configuration:
    """Refuse what cannot work, before anything is started. Raises FlinklikeError."""
    configuration = load(layout.conf, environment=environment, dynamic=job.cluster_options())
    if problems := tuple(application_problems(configuration)):
        raise InvalidInputError("\n".join(problems), problems)
    for kind in (JOBMANAGER, STANDALONEJOB):
        for one in Daemon(kind, layout, environment, out).instances():
            message = (
                f"{one.process} (pid {one.pid}) runs from {layout.run}: a job that is its own cluster has a run "
                "directory of its own, FLINKLIKE_RUN_DIR"
            )
            raise DaemonError(message)
    prepare_run_directory(layout, out)
    if configuration.get(ETCD_EMBEDDED):
        control = ClusterControl(layout, environment, job.cluster_options(), out)
        control.start_etcd(configuration.get(ETCD_EMBEDDED_PORT), undo)
    return configuration


def _start(daemon: JobDaemon) -> None:
    starting = daemon.spawn(())
    try:
        wait_all([starting], START_TIMEOUT)
    except BaseException:
        daemon.give_up([starting])
        raise
    daemon.show_output(starting)


def _become(daemon: JobDaemon) -> None:
    daemon.run_foreground(())

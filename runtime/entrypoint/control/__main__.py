"""Behind the scripts of bin/: `control <daemon> <verb>`, `control start-cluster` and `control stop-cluster`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import takewhile
from types import FrameType

from runtime.common.errors import FlinklikeError
from runtime.common.printable import printable
from runtime.config.layout import Layout
from runtime.config.loading import load, parse_dynamic
from runtime.entrypoint.control.airflow import (
    airflow_environment,
    check_example,
    run_standalone,
    shell_exports,
    standalone_environment,
)
from runtime.entrypoint.control.cluster import END_CONTAINERS, ROLL, ClusterControl
from runtime.entrypoint.control.daemon import (
    HISTORYSERVER,
    JOBMANAGER,
    JOBMASTER,
    KINDS,
    STANDALONEJOB,
    TASKMANAGER,
    Daemon,
    drain_patience,
)
from runtime.entrypoint.control.plan import options_of_next
from runtime.entrypoint.control.remote import SCRIPTS, show
from runtime.entrypoint.control.run_directory import prepare_run_directory
from runtime.entrypoint.control.standalone_job import run_standalone_job
from runtime.entrypoint.control.worker_verbs import VERBS
from runtime.security.file_mask import keep_files_private

_CLUSTER_VERBS = frozenset(
    {
        "start-cluster",
        "status-cluster",
        "stop-cluster",
        "rolling-restart",
        "check-example",
        "airflow-environment",
        "airflow-standalone",
    }
)
_DAEMONS = {**KINDS, HISTORYSERVER.name: HISTORYSERVER}
_NOT_RUNNING = 3
_INTERRUPTED = 130


_VERBS: dict[str, Callable[[Daemon, list[str]], None]] = {
    "start": lambda daemon, dynamic: daemon.start(dynamic, 1),
    "start-foreground": Daemon.run_foreground,
    "stop": lambda daemon, _: daemon.stop_last(),
    "stop-all": lambda daemon, _: daemon.stop_all(),
    "drain": lambda daemon, dynamic: daemon.drain_last(_drain_patience(dynamic)),
}


def _drain_patience(dynamic: list[str]) -> float:
    layout = Layout.from_environment(os.environ)
    return drain_patience(load(layout.conf, environment=os.environ, dynamic=dynamic))


def _run_daemon(name: str, arguments: list[str]) -> int:
    layout = Layout.from_environment(os.environ)
    kind = _DAEMONS[name]
    if arguments[:1] == ["ensure"] and name in KINDS:
        return _ensure(Daemon(kind, layout, os.environ, sys.stderr), layout, arguments[1:])
    if arguments and arguments[0] in VERBS and kind.label:
        VERBS[arguments[0]](Daemon(kind, layout, os.environ, sys.stderr), layout, arguments[1:])
        return 0
    if arguments[:1] == [END_CONTAINERS]:
        ClusterControl(layout, os.environ, (), sys.stdout).stop_containers()
        return 0
    if arguments[:1] == [ROLL] and name in KINDS:
        ClusterControl(layout, os.environ, parse_dynamic(arguments[1:]), sys.stdout).restart_here(kind)
        return 0
    verbs = [verb for verb in _VERBS if verb != "drain" or kind.drains]
    if not arguments or arguments[0] not in verbs:
        sys.stdout.write(f"Usage: {SCRIPTS[kind]} ({'|'.join(verbs)}) [-D key=value ...]\n")
        return 1
    dynamic = parse_dynamic(arguments[1:])
    daemon = Daemon(kind, layout, os.environ, sys.stdout)
    if arguments[0].startswith("start"):
        dynamic = [*options_of_next(daemon.kind, layout, daemon.instances()), *dynamic]
        load(layout.conf, environment=os.environ, dynamic=dynamic)
        prepare_run_directory(layout, sys.stderr)
    _VERBS[arguments[0]](daemon, dynamic)
    return 0


def _ensure(daemon: Daemon, layout: Layout, arguments: list[str]) -> int:
    """`ensure COUNT PORT`, for start-cluster.sh on another host: start until COUNT run, and print them as JSON."""
    count, port, *options = arguments
    dynamic = parse_dynamic(options)
    load(layout.conf, environment=os.environ, dynamic=dynamic)
    prepare_run_directory(layout, sys.stderr)
    served = [one for one in daemon.instances() if int(port) in (0, one.port)]
    daemon.start(dynamic, int(count) - len(served))
    sys.stdout.write(show(daemon.instances()))
    return 0


def _rolling_restart(arguments: list[str]) -> int:
    """`[jobmaster] [jobmanager] [taskmanager] [-D key=value ...]`; without a name all kinds."""
    kinds = list(takewhile(KINDS.__contains__, arguments))
    dynamic = parse_dynamic(arguments[len(kinds) :])
    control = ClusterControl(Layout.from_environment(os.environ), os.environ, dynamic, sys.stdout)
    control.rolling_restart([KINDS[kind] for kind in kinds] or [JOBMASTER, JOBMANAGER, TASKMANAGER])
    return 0


def _run_cluster(name: str, arguments: list[str]) -> int:
    if name == "rolling-restart":
        return _rolling_restart(arguments)
    control = ClusterControl(Layout.from_environment(os.environ), os.environ, parse_dynamic(arguments), sys.stdout)
    match name:
        case "check-example":
            check_example(control.configuration())
        case "airflow-environment":
            sys.stdout.write(shell_exports(_airflow_variables(control)))
        case "airflow-standalone":
            environment = standalone_environment(_airflow_variables(control), os.environ)
            return run_standalone(control.layout, environment, sys.stdout)
        case "start-cluster":
            control.start()
        case "status-cluster":
            return 0 if control.status() else _NOT_RUNNING
        case _:
            control.stop()
    return 0


def _airflow_variables(control: ClusterControl) -> dict[str, str]:
    configuration = control.configuration()
    return airflow_environment(control.layout, configuration, control.rest_addresses(configuration))


def _end_in_order() -> None:
    """Let SIGTERM and SIGHUP end the script through every `finally`, as Ctrl-C does: started processes are stopped."""

    def leave(number: int, _frame: FrameType | None) -> None:
        for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not below nohup
            signal.signal(number, leave)


def main(arguments: list[str]) -> int:
    """Exit code 0 after a success, 1 with sentences on stderr after a failure."""
    _end_in_order()
    keep_files_private(os.environ)
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    try:
        if name in _DAEMONS:
            return _run_daemon(name, rest)
        if name in _CLUSTER_VERBS:
            return _run_cluster(name, rest)
        if name == STANDALONEJOB.name:
            return run_standalone_job(rest, os.environ, sys.stdout)
    except FlinklikeError as error:
        sys.stderr.write(f"{printable(str(error))}\n")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    sys.stderr.write(f"Unknown daemon {name!r}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Behind the scripts of bin/: `control <daemon> <verb>`, `control start-cluster` and `control stop-cluster`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from runtime.common.errors import FlinklikeError
from runtime.config.configuration import load
from runtime.config.layout import Layout
from runtime.entrypoint.control.airflow import airflow_environment, run_standalone, shell_exports
from runtime.entrypoint.control.cluster import ClusterControl
from runtime.entrypoint.control.daemon import KINDS, Daemon, DaemonError

_CLUSTER_VERBS = frozenset(
    {"start-cluster", "ensure-cluster", "status-cluster", "stop-cluster", "airflow-environment", "airflow-standalone"}
)
_NOT_RUNNING = 3
_SCRIPT_OF = {"jobmanager": "jobmanager.sh", "jobmaster": "start-jobmaster.sh", "taskmanager": "taskmanager.sh"}


def parse_dynamic(arguments: list[str]) -> list[str]:
    """The `key=value` texts of `-D key=value` and `-Dkey=value`. Raises DaemonError for anything else."""
    dynamic: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "-D" and rest:
            dynamic.append(rest.pop(0))
        elif argument.startswith("-D") and len(argument) > 2:
            dynamic.append(argument[2:])
        else:
            message = f"Unknown argument {argument!r}: only -D key=value may follow."
            raise DaemonError(message)
    return dynamic


def _start(daemon: Daemon, dynamic: list[str]) -> None:
    daemon.wait_ready(daemon.spawn(dynamic))


_VERBS: dict[str, Callable[[Daemon, list[str]], None]] = {
    "start": _start,
    "start-foreground": Daemon.run_foreground,
    "stop": lambda daemon, _: daemon.stop_last(),
    "stop-all": lambda daemon, _: daemon.stop_all(),
}


def _run_daemon(name: str, arguments: list[str]) -> int:
    if not arguments or arguments[0] not in _VERBS:
        verbs = "|".join(_VERBS)
        sys.stdout.write(f"Usage: {_SCRIPT_OF[name]} ({verbs}) [-D key=value ...]\n")
        return 1
    layout = Layout.from_environment(os.environ)
    dynamic = parse_dynamic(arguments[1:])
    if arguments[0].startswith("start"):
        load(layout.conf, environment=os.environ, dynamic=dynamic)
        layout.run.mkdir(parents=True, exist_ok=True)
    _VERBS[arguments[0]](Daemon(KINDS[name], layout, os.environ, sys.stdout), dynamic)
    return 0


def _run_cluster(name: str, arguments: list[str]) -> int:
    control = ClusterControl(Layout.from_environment(os.environ), os.environ, parse_dynamic(arguments), sys.stdout)
    match name:
        case "airflow-environment":
            sys.stdout.write(shell_exports(airflow_environment(control.layout, control.configuration)))
        case "airflow-standalone":
            return run_standalone(control.layout, control.configuration, sys.stdout)
        case "start-cluster":
            control.start()
        case "ensure-cluster":
            control.ensure()
        case "status-cluster":
            return 0 if control.status() else _NOT_RUNNING
        case _:
            control.stop()
    return 0


def main(arguments: list[str]) -> int:
    """0 when all of it was done; 1 with sentences on stderr otherwise."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    try:
        if name in KINDS:
            return _run_daemon(name, rest)
        if name in _CLUSTER_VERBS:
            return _run_cluster(name, rest)
    except FlinklikeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(f"Unknown daemon {name!r}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

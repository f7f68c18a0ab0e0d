"""Totals of a report: tasks by verdict, environments with those that share them, and JVM starts a day."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflow_flinklike.migrate.analysis import FileReport
from airflow_flinklike.migrate.confs import is_own
from airflow_flinklike.migrate.model import DagInfo, Judgement, Place, Placement, Verdict
from airflow_flinklike.migrate.parameters import CONNECTIONS
from airflow_flinklike.migrate.schedules import UNKNOWN

START_SECONDS = 13.0
"""A start of spark-submit with a driver JVM, measured (README)."""
IDLE_MINUTES = 15
"""`taskmanager.spark.environment.idle-timeout`: an environment that no task has used for so long ends."""


@dataclass(slots=True)
class Environment:
    """One Spark environment and who would share it."""

    key: str
    conf: Mapping[str, str]
    places: int = 0
    tasks: int = 0
    runs: dict[DagInfo, float] = field(default_factory=dict)
    memory_bytes: int = 0
    """Of its JVM: heap and overhead."""


@dataclass(slots=True)
class Summary:
    """Totals. Tasks whose number is not known are counted as one, and `is_at_least` says so."""

    start_seconds: float = START_SECONDS
    files: int = 0
    problems: int = 0
    places: dict[Verdict, int] = field(default_factory=lambda: dict.fromkeys(Verdict, 0))
    tasks: dict[Verdict, int] = field(default_factory=lambda: dict.fromkeys(Verdict, 0))
    connections: dict[str, int] = field(default_factory=dict)
    environments: dict[str, Environment] = field(default_factory=dict)
    is_at_least: bool = False
    unscheduled: int = 0
    """Tasks of DAGs that run when somebody starts them, or whose schedule is known only when they run."""
    unseen_scripts: int = 0
    """Tasks whose application is a script that was not read: static conf of its own builder is not known."""
    own_jvms: int = 0
    """Tasks with a JVM that no other task shares."""
    own_jvm_bytes: int = 0
    """The memory of the largest of these."""
    tasks_of_runs: dict[DagInfo, int] = field(default_factory=dict)
    """Tasks of each DAG that move."""
    starts_before: float = 0.0
    starts_after: float = 0.0

    @property
    def environment_bytes(self) -> int:
        """The memory of all shared environments, if they are there at the same time."""
        return sum(one.memory_bytes for one in self.environments.values())

    @property
    def largest_run(self) -> tuple[str, int]:
        """The DAG with the most tasks that move, and their number."""
        runs = ((number, dag.dag_id) for dag, number in self.tasks_of_runs.items())
        number, name = max(runs, default=(0, ""))
        return name, number

    @property
    def seconds_saved(self) -> float:
        """A day."""
        return (self.starts_before - self.starts_after) * self.start_seconds


def summarize(reports: Iterable[FileReport], start_seconds: float = START_SECONDS) -> Summary:
    """The totals of all files."""
    found = Summary(start_seconds)
    for report in reports:
        found.files += 1
        found.problems += bool(report.problem)
        for place, judgement in report.tasks:
            _add(found, place, judgement)
    found.starts_after += sum(_starts(one) for one in found.environments.values())
    return found


def counted(place: Place) -> int:
    """The tasks of a place, at least: a number that is not known counts as one."""
    return sum(map(_at_least, place.placements)) if place.placements else 1


def _at_least(placement: Placement) -> int:
    return 1 if placement.count is None else placement.count


def _add(found: Summary, place: Place, judgement: Judgement) -> None:
    tasks = counted(place)
    found.places[judgement.verdict] += bool(place.calls or tasks)  # a class of its own makes no task where it stands
    found.tasks[judgement.verdict] += tasks
    found.is_at_least |= place.count is None
    if tasks:
        connection = _connection(place)
        found.connections[connection] = found.connections.get(connection, 0) + tasks
    runs = _runs(place)
    found.starts_before += sum(runs.values())
    found.unscheduled += tasks - sum(
        _at_least(one) for one in place.placements if one.dag is not None and one.dag.schedule.runs_per_day
    )
    found.unseen_scripts += tasks if place.script_conf is None else 0
    for one in place.placements if judgement.moves else ():
        if one.dag is not None:
            found.tasks_of_runs[one.dag] = found.tasks_of_runs.get(one.dag, 0) + _at_least(one)
    _add_jvms(found, place, judgement, runs)


def _add_jvms(found: Summary, place: Place, judgement: Judgement, runs: dict[DagInfo, float]) -> None:
    """The JVMs that are started after the move, in environments and otherwise."""
    tasks, keys = counted(place), judgement.environments
    if judgement.verdict is Verdict.ENVIRONMENT and len(keys) == 1 and keys[0] and not is_own(keys[0]):
        shared = found.environments.setdefault(keys[0], Environment(keys[0], judgement.static_conf))
        shared.memory_bytes = judgement.memory_bytes
        shared.places += 1
        shared.tasks += tasks
        for dag in runs:
            # Tasks of one run of a DAG find the environment warm.
            shared.runs[dag] = dag.schedule.runs_per_day or 0.0
    elif judgement.verdict is not Verdict.MOVES:
        found.own_jvms += tasks if judgement.moves else 0
        found.own_jvm_bytes = max(found.own_jvm_bytes, judgement.memory_bytes)
        found.starts_after += sum(runs.values())


def _connection(place: Place) -> str:
    """The connection that tasks of a place use now."""
    given = place.parameters.get(CONNECTIONS[place.kind])
    if given is not None:
        return str(given.value)
    return UNKNOWN if place.has_open_defaults or place.open_spreads else "the operator's default"


def _runs(place: Place) -> dict[DagInfo, float]:
    """Runs of the place's tasks a day, by DAG; none where the schedule is not known."""
    runs: dict[DagInfo, float] = {}
    for one in place.placements:
        if one.dag is not None and one.dag.schedule.runs_per_day:
            runs[one.dag] = runs.get(one.dag, 0.0) + _at_least(one) * one.dag.schedule.runs_per_day
    return runs


def _starts(environment: Environment) -> float:
    """Starts a day: at each run of a DAG, unless runs come so often that the environment stays warm."""
    runs = sum(environment.runs.values())
    return min(runs, 1.0) if runs > 24 * 60 / IDLE_MINUTES else runs


def rounded(number: float) -> str:
    """For people: no digits that nobody knows."""
    if number >= 10 or number == math.floor(number):
        return f"{number:,.0f}".replace(",", " ")
    return f"{number:.1f}" if number >= 0.1 else f"{number:.2f}"

"""Imports DAG files through Airflow's DagBag, and brings the real tasks into the report: only here is Airflow imported.

A place of the source says what could be; the real tasks say how many there are, and with which values.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_flinklike.migrate.analysis import FileReport
from airflow_flinklike.migrate.changing import notes_of_changes
from airflow_flinklike.migrate.judging import judge
from airflow_flinklike.migrate.model import (
    Act,
    Change,
    DagInfo,
    Judgement,
    Kind,
    Origin,
    Parameter,
    Place,
    Placement,
    Verdict,
)
from airflow_flinklike.migrate.origins import Origins
from airflow_flinklike.migrate.parameters import CONNECTIONS, HOLDING, KEPT, RENAMED
from airflow_flinklike.migrate.schedules import schedule_of
from airflow_flinklike.migrate.scripts import find_script
from runtime.common.errors import InvalidInputError

_CLASSES = {
    "SparkSubmitOperator": Kind.SPARK_SUBMIT,
    "SparkSqlOperator": Kind.SPARK_SQL,
    "LivyOperator": Kind.LIVY,
    "_PySparkDecoratedOperator": Kind.PYSPARK,
}
_MISSING = object()
_Row = tuple[Place, Judgement]


def load_tasks(reports: Sequence[FileReport], roots: Iterable[Path]) -> None:
    """Import the files, and put the real tasks into the reports, before these are settled.

    A file that Airflow cannot import gets a problem. `roots` are the directories from which the files import others.
    Raises InvalidInputError where Airflow is not installed.
    """
    for root in roots:
        folder = str((root if root.is_dir() else root.parent).resolve())
        if folder not in sys.path:
            sys.path.insert(0, folder)
    with _quiet_stdout():
        _load(reports)


@contextmanager
def _quiet_stdout() -> Iterator[None]:
    """What DAG files and Airflow print goes to stderr: it is no part of the report."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _load(reports: Sequence[FileReport]) -> None:
    try:
        from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415 - only --load needs Airflow
    except ModuleNotFoundError as error:
        message = (
            f"--load imports DAG files through Airflow, and {error.name} is not installed here: run it where Airflow's "
            "workers run, or leave --load out"
        )
        raise InvalidInputError(message) from error
    from airflow.sdk import DAG  # noqa: PLC0415

    origins = Origins(reports)
    loaded = _Loaded(reports, origins)
    with origins.noted(DAG):
        for report in reports:
            if report.problem:
                continue
            file = report.path.resolve()
            try:
                bag: Any = DagBag(str(file), bundle_path=file.parent, bundle_name="migrate", load_op_links=False)
            except SystemExit:
                report.problem = "Airflow cannot import it: it ends the process"
                continue
            if bag.import_errors:
                text = str(next(iter(bag.import_errors.values()))).strip()
                report.problem = f"Airflow cannot import it: {text.splitlines()[-1]}"
            for dag in bag.dags.values():
                loaded.read(report, dag)
    loaded.finish()


class _Loaded:
    """The real tasks by the place of the source that makes them."""

    def __init__(self, reports: Sequence[FileReport], origins: Origins) -> None:
        self._reports = reports
        self._origins = origins
        self._real: dict[Place, list[Place]] = {}
        self._homeless: dict[FileReport, list[Place]] = {}

    def read(self, report: FileReport, dag: Any) -> None:
        """Take the tasks of one DAG."""
        schedule = getattr(dag, "schedule", None)
        info = DagInfo(str(dag.dag_id), schedule_of(schedule))
        for task in dag.tasks:
            real = _real_place(task, info)
            if real is None:
                continue
            real.script_conf, real.script_problem = find_script(real, report.path)
            function = _function(task) if real.kind is Kind.PYSPARK else None
            place = self._origins.place_of(task, function)
            if place is None:
                real.line = self._origins.line_of(task, report)
                self._homeless.setdefault(report, []).append(real)
            else:
                self._real.setdefault(place, []).append(real)

    def finish(self) -> None:
        """Write what is known now into the reports."""
        for report in self._reports:
            for place in list(report.judgements):
                self._finish_place(report, place)
            for place in self._homeless.get(report, ()):
                why = "it is made by code that is not among these files: move it there, or by hand"
                report.rows[place] = [(place, Judgement(Verdict.STAYS, tuple(place.obstacles) or (why,)))]

    def _finish_place(self, report: FileReport, place: Place) -> None:
        judgement, real = report.judgements[place], self._real.get(place)
        if real is not None:
            report.rows[place] = [*_rows(place, judgement, real)]
            held = [one.reasons[0] for _, one in report.rows[place] if not one.moves]
            if judgement.moves and held:
                report.judgements[place] = judgement.held(held[0])
        elif not report.problem:
            report.rows[place] = [(replace(place, placements=[Placement(None, 0)]), judgement)]


def _rows(place: Place, judgement: Judgement, real: Sequence[Place]) -> Iterator[_Row]:
    """The real tasks of a place, those with the same verdict together."""
    groups: dict[tuple[Any, ...], tuple[Judgement, list[Place]]] = {}
    for task in real:
        found = judge(_without_keys(task, judgement.changes))
        if judgement.moves and found.moves:
            notes = [*found.notes, *notes_of_changes(judgement.changes)]
            found = replace(found, notes=tuple(dict.fromkeys(notes)), changes=judgement.changes)
        elif not judgement.moves:
            found = judgement
        groups.setdefault((found.verdict, found.environments, found.reasons), (found, []))[1].append(task)
    for found, tasks in groups.values():
        placements = [one for task in tasks for one in task.placements]
        name = tasks[0].task_id if len(tasks) == 1 else place.task_id
        yield (
            replace(
                place,
                task_id=name,
                placements=placements,
                parameters=tasks[0].parameters,
                script_conf=tasks[0].script_conf,
                has_open_defaults=False,
                open_spreads=[],
            ),
            found,
        )


def _without_keys(task: Place, changes: Iterable[Change]) -> Place:
    """The task without the keys that the rewrite takes out of its conf."""
    parameters = dict(task.parameters)
    for change in changes:
        given = parameters.get(change.name)
        if change.act is Act.DROP_KEY and given is not None and isinstance(given.value, dict):
            conf = {key: value for key, value in given.value.items() if key != change.text}
            parameters[change.name] = replace(given, value=conf)
    return replace(task, parameters=parameters)


def _real_place(task: Any, dag: DagInfo) -> Place | None:
    """A task of a kind that can move, with its values; None for other tasks."""
    is_mapped = bool(getattr(task, "is_mapped", False))
    own = task.operator_class if is_mapped else type(task)
    if not isinstance(own, type):
        return None
    kinds = [(one, _CLASSES[one.__name__]) for one in own.__mro__ if _is_operator(one)]
    if not kinds:
        return None
    operator, kind = kinds[0]
    count = _mapped_count(task) if is_mapped else 1
    values = dict(_mapped_values(task)) if is_mapped else {name: Parameter(v) for name, v in _values(task, kind)}
    place = Place(kind, 0, str(task.task_id), ast.Name(""), parameters=values, placements=[Placement(dag, count)])
    if operator is not own:
        place.obstacles.append(f"{own.__name__} is a subclass of {kind}: change its base class and its code by hand")
    return place


def _is_operator(one: type) -> bool:
    return one.__name__ in _CLASSES and one.__module__.startswith("airflow.")


def _values(task: Any, kind: Kind) -> Iterator[tuple[str, Any]]:
    """The values that decide. An operator keeps a parameter under its name, or under that with an underscore."""
    for name in (*KEPT[kind], *RENAMED[kind], *HOLDING[kind], CONNECTIONS[kind], "polling_interval"):
        value = getattr(task, name, getattr(task, f"_{name}", _MISSING))
        if (
            value is not _MISSING
            and value is not None
            and name not in {"queue", "op_args", "op_kwargs", "python_callable"}
        ):
            yield name, value


def _mapped_values(task: Any) -> Iterator[tuple[str, Parameter]]:
    """What `.partial()` and `.expand()` have, and the `default_args` that Airflow gives each instance when it runs."""
    for owner in (task.dag, task.task_group):  # the nearest one counts
        for name, value in (getattr(owner, "default_args", None) or {}).items():
            yield name, Parameter(value, Origin.DEFAULT_ARGS)
    for name, value in task.partial_kwargs.items():
        yield name, Parameter(value)
    mapped = getattr(task.expand_input, "value", None)
    for name, value in mapped.items() if isinstance(mapped, dict) else ():
        yield name, Parameter(list(value) if isinstance(value, tuple) else value, Origin.MAPPED)


def _function(task: Any) -> Any:
    """The decorated function; None of what is none."""
    given = task.partial_kwargs.get("python_callable") if getattr(task, "is_mapped", False) else task.python_callable
    return given if hasattr(given, "__code__") else None


def _mapped_count(task: Any) -> int | None:
    """The number of its instances, if the DAG file says it."""
    mapped = getattr(task.expand_input, "value", None)
    several = list(mapped.values()) if isinstance(mapped, dict) else [mapped]
    count = 1
    for one in several:
        if not isinstance(one, list | tuple | dict):
            return None
        count *= len(one)
    return count

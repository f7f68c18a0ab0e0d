"""The place of the source that makes a real task: calls that are under way are noted while Airflow imports a file."""

from __future__ import annotations

import ast
import functools
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from airflow_flinklike.migrate.analysis import FileReport
from airflow_flinklike.migrate.model import Place


class Position(NamedTuple):
    """The end of a call in a file, which no other call has."""

    file: str
    line: int
    column: int


class Origins:
    """Of each real task, the calls of the files read during which it was made, the innermost first."""

    def __init__(self, reports: Sequence[FileReport]) -> None:
        self._files = {_real(str(report.path)): report for report in reports}
        self._calls: dict[Any, list[Position]] = {}
        self._places = {position: place for report in reports for position, place in _positions(report)}

    @contextmanager
    def noted(self, dag_class: Any) -> Iterator[None]:
        """Note the origin of each task that is added to a DAG in here."""
        add_task = dag_class.add_task

        @functools.wraps(add_task)
        def noting(dag: Any, task: Any) -> Any:
            self._calls[id(task)] = [*self._under_way(sys._getframe(1))]  # noqa: SLF001 - that is its documented name
            return add_task(dag, task)

        dag_class.add_task = noting
        try:
            yield
        finally:
            dag_class.add_task = add_task

    def _under_way(self, frame: FrameType | None) -> Iterator[Position]:
        while frame is not None:
            file = _real(frame.f_code.co_filename)
            if file in self._files:
                position = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
                yield Position(file, position[1] or 0, position[3] or 0)
            frame = frame.f_back

    def place_of(self, task: Any, function: Any = None) -> Place | None:
        """The place that makes a task, or that decorates its `function`; None if no file read has one."""
        calls = self._calls.get(id(task), [])
        if function is not None:
            code = function.__code__
            calls = [Position(_real(code.co_filename), code.co_firstlineno, _DECORATOR)]
        return next((self._places[call] for call in calls if call in self._places), None)

    def line_of(self, task: Any, report: FileReport) -> int:
        """The line of a file on which a task is made, by whatever code; 0 if none is."""
        calls = self._calls.get(id(task), [])
        return next((call.line for call in calls if self._files[call.file] is report), 0)


_DECORATOR = -1


def _positions(report: FileReport) -> Iterator[tuple[Position, Place]]:
    file = _real(str(report.path))
    for place in report.judgements:
        top: ast.AST = place.reference
        for call in place.calls:
            yield Position(file, call.end_lineno or 0, call.end_col_offset or 0), place
            top = call
        parent = None if report.found is None else report.found.tree.parents.get(top)
        if isinstance(parent, ast.FunctionDef) and top in parent.decorator_list:
            yield Position(file, parent.decorator_list[0].lineno, _DECORATOR), place


@functools.cache
def _real(file: str) -> str:
    return os.path.realpath(file)

"""The DAGs of a file, and how many tasks a place of it makes in each: loops and calls of functions count."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from airflow_flinklike.migrate.model import Computed, DagInfo, Placement
from airflow_flinklike.migrate.schedules import UNKNOWN, schedule_of
from airflow_flinklike.migrate.tree import Function, Tree

_PLACEMENTS_MAX = 2000
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_TIMETABLES = (
    "CronTriggerTimetable",
    "CronDataIntervalTimetable",
    "DeltaTriggerTimetable",
    "DeltaDataIntervalTimetable",
)


class Dags:
    """The DAGs of one file."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[ast.AST, DagInfo] = {}
        self._items = [node for node in tree.nodes if isinstance(node, ast.withitem)]
        self._outside: dict[ast.AST, list[Placement]] = {}

    def placements(self, node: ast.AST, argument: ast.expr | None = None) -> list[Placement]:
        """Where a node makes tasks. `argument`: its `dag=`, if it has one."""
        dag = None if argument is None else self._of_expression(self._tree.meant(argument))
        is_open = argument is not None
        count: int | None = 1
        child = node
        for parent in self._tree.ancestors(node):
            match parent:
                case ast.With() | ast.AsyncWith() if child in parent.body:
                    dag = dag or self._of_with(parent)
                    is_open |= not all(self._is_group(item.context_expr) for item in parent.items)
                case ast.For() | ast.AsyncFor() if child in parent.body:
                    count = _times(count, self._length(parent.iter))
                case ast.While() if child in parent.body:
                    count = None
                case _ if isinstance(parent, _COMPREHENSIONS) and not isinstance(child, ast.comprehension):
                    count = self._of_generators(count, parent.generators)
                case ast.Lambda():
                    return [Placement(dag, None, dag is None)]
                case ast.FunctionDef() | ast.AsyncFunctionDef() if child in parent.body:
                    found = self._in_function(parent, dag, count)
                    return [replace(one, is_open=one.dag is None and (is_open or one.is_open)) for one in found]
                case _:
                    pass
            child = parent
        return [Placement(dag, count, dag is None and is_open)]

    def _is_group(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._tree.imports.is_airflow(node.func, "TaskGroup")

    def _in_function(self, function: Function, dag: DagInfo | None, count: int | None) -> list[Placement]:
        """A function makes its tasks at each call. One that only others call is counted as unknown."""
        makes_dag = next((self._of_decorator(one) for one in function.decorator_list if self._is_dag(one)), None)
        dag = dag or makes_dag
        if makes_dag is not None and not self._tree.calls_of(function.name):
            return [Placement(dag, count)]
        return [Placement(dag or one.dag, _times(count, one.count), one.is_open) for one in self._calls(function)]

    def _calls(self, function: Function) -> list[Placement]:
        """Where a function is called. Of a method, and of one that calls itself, nothing is known."""
        if function not in self._outside:
            unknown = [Placement(None, None, is_open=True)]
            self._outside[function] = unknown
            calls = self._tree.calls_of(function.name)
            if isinstance(self._tree.parents.get(function), ast.ClassDef) or len(calls) > _PLACEMENTS_MAX:
                return unknown
            found = [
                replace(outer, count=_times(self._mapped_length(call), outer.count))
                for call in calls
                for outer in self.placements(call)
            ]
            self._outside[function] = found if 0 < len(found) <= _PLACEMENTS_MAX else unknown
        return self._outside[function]

    def _mapped_length(self, call: ast.Call) -> int | None:
        """The instances that `f.expand(...)` makes; 1 for a plain call."""
        if not (isinstance(call.func, ast.Attribute) and call.func.attr in {"expand", "expand_kwargs"}):
            return 1
        return self.expanded(call)

    def expanded(self, call: ast.Call) -> int | None:
        """The number of tasks that `.expand(...)` or `.expand_kwargs(...)` makes, if the file tells it."""
        total: int | None = 1
        for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
            total = _times(total, self._length(value))
        return total

    def _of_generators(self, count: int | None, generators: list[ast.comprehension]) -> int | None:
        for one in generators:
            count = None if one.ifs else _times(count, self._length(one.iter))
        return count

    def _length(self, node: ast.expr) -> int | None:
        match node:
            case ast.Call(func=ast.Attribute(attr="items" | "keys" | "values", value=inner), args=[]):
                return self._length(inner)
            case ast.Call(func=ast.Name(id="enumerate" | "sorted" | "reversed" | "list" | "set"), args=[inner, *_]):
                return self._length(inner)
            case ast.ListComp(generators=generators) | ast.GeneratorExp(generators=generators):
                return self._of_generators(1, generators)
            case _:
                return _length_of(self._tree.value(node))

    def _of_with(self, node: ast.With | ast.AsyncWith) -> DagInfo | None:
        for item in node.items:
            found = self._of_expression(self._tree.meant(item.context_expr))
            if found is not None:
                return found
        return None

    def _of_expression(self, node: ast.expr | None) -> DagInfo | None:
        """Also of a name that `with DAG(...) as name` binds."""
        if isinstance(node, ast.Name):
            node = next((item.context_expr for item in self._items if _binds(item, node.id)), None)
        if isinstance(node, ast.Call) and self._tree.imports.is_airflow(node.func, "DAG"):
            return self._info(node, node)
        return None

    def _is_dag(self, decorator: ast.expr) -> bool:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        return self._tree.imports.is_airflow(function, "dag")

    def _of_decorator(self, decorator: ast.expr) -> DagInfo:
        function = self._tree.parents[decorator]
        name = function.name if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) else ""
        return self._info(decorator, decorator if isinstance(decorator, ast.Call) else None, name)

    def _info(self, key: ast.AST, call: ast.Call | None, name: str = "") -> DagInfo:
        if key not in self._known:
            given = self._arguments(call) if call else {}
            dag_id = given.get("dag_id", name)
            schedule = given.get("schedule", given.get("schedule_interval", given.get("timetable")))
            if any(isinstance(one, Computed) for one in given) and schedule is None:
                schedule = Computed(UNKNOWN)
            args = given.get("default_args") or {one: one for one in given if isinstance(one, Computed)}
            self._known[key] = DagInfo(
                dag_id if isinstance(dag_id, str) else "",
                schedule_of(schedule),
                args if isinstance(args, dict) else {Computed("**default_args"): args},
            )
        return self._known[key]

    def _arguments(self, call: ast.Call) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for keyword in call.keywords:
            value = self._tree.value(keyword.value)
            if keyword.arg is not None:
                found[keyword.arg] = self._timetable(keyword.value) if isinstance(value, Computed) else value
            else:
                found |= value if isinstance(value, dict) else {Computed("**"): value}
        if call.args:
            found.setdefault("dag_id", self._tree.value(call.args[0]))
        return found

    def _timetable(self, node: ast.expr) -> Any:
        """The cron text or timedelta of a timetable of Airflow, else the computed value."""
        meant = self._tree.meant(node)
        if isinstance(meant, ast.Call) and meant.args and self._tree.imports.is_airflow(meant.func, *_TIMETABLES):
            return self._tree.value(meant.args[0])
        return self._tree.value(node)


def _binds(item: ast.withitem, name: str) -> bool:
    return isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == name


def _times(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one * other


def _length_of(value: Any) -> int | None:
    """The length of a list or mapping; None if a part of it is spread from what is not known."""
    if isinstance(value, dict):
        return None if any(isinstance(key, Computed) and key.text.startswith("**") for key in value) else len(value)
    return len(value) if isinstance(value, list) else None

"""Finds the Spark tasks of a DAG file in its source, with their parameters. Nothing of the file is executed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_flinklike.migrate.bodies import obstacles_of_body
from airflow_flinklike.migrate.dags import Dags
from airflow_flinklike.migrate.import_edits import new_names, taken_names
from airflow_flinklike.migrate.imports import OTHERS, dotted
from airflow_flinklike.migrate.model import Computed, Kind, Origin, Parameter, Place, Placement
from airflow_flinklike.migrate.tree import Function, Tree

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_PART = "a part of default_args is"


@dataclass(eq=False, slots=True)
class Found:
    """The Spark tasks of one file, and the other uses of their operators' names.

    `followers` are annotations, which are renamed when all tasks of the file move.
    """

    tree: Tree
    places: list[Place] = field(default_factory=list)
    followers: list[ast.expr] = field(default_factory=list)
    others: list[tuple[str, int]] = field(default_factory=list)
    """Classes of the same providers that have no counterpart, with their lines."""
    subclasses: dict[str, Kind] = field(default_factory=dict)
    """Subclasses of the operators that the file defines."""

    def maker_of(self, place: Place) -> str:
        """The function or class of the module that makes the tasks of a place; "" for a place outside of any."""
        around = [node for node in self.tree.ancestors(place.reference) if isinstance(node, _NAMED)]
        return around[-1].name if around and place.count != 0 else ""


def find_tasks(text: str, imported: Callable[[str], Kind | None] = lambda _: None) -> Found:
    """The Spark tasks of a file. `imported` knows subclasses of the operators in other files by their full names.

    Raises SyntaxError, ValueError or RecursionError for a text that is no Python.
    """
    return _Finder(Tree(text), imported).find()


class _Finder:
    def __init__(self, tree: Tree, imported: Callable[[str], Kind | None]) -> None:
        self._imported = imported
        self._tree = tree
        self._dags = Dags(tree)
        self._found = Found(tree)
        self._taken = taken_names(self._tree)

    def find(self) -> Found:
        for node in self._tree.nodes:
            if isinstance(node, ast.ClassDef):
                self._read_class(node)
        for node in self._tree.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and not self._is_part(node):
                self._read_reference(node)
        for place in self._found.places:
            place.obstacles += self._obstacles(place)
        self._found.places.sort(key=lambda place: (place.line, place.reference.col_offset))
        return self._found

    def _obstacles(self, place: Place) -> Iterator[str]:
        """Reasons against a move that other parts of the file give."""
        if (name := new_names(place.kind)[1]) in self._taken:
            yield f"the file uses the name {name} for something else"
        if any(isinstance(node, ast.JoinedStr) for node in self._tree.ancestors(place.reference)):
            yield "it stands in an f-string"
        is_there = self._tree.imports_in_reach(place.reference) or self._tree.imports.is_by_star(place.reference)
        if not is_there:
            yield "its class is imported in another function"
        if place.kind is Kind.LIVY and any(name == "LivySensor" for name, _ in self._found.others):
            yield "a LivySensor waits for a batch: use a FlinklikeJobSensor with job_id for it"

    def _is_part(self, node: ast.expr) -> bool:
        """True for `a.b` of `a.b.c`, unless it alone names the operator, as in `Operator.partial`."""
        parent = self._tree.parents.get(node)
        return isinstance(parent, ast.Attribute) and self._tree.imports.kind_of(parent) is not None

    def _read_class(self, node: ast.ClassDef) -> None:
        kinds = [self._tree.imports.kind_of(base) or self._subclass(base) for base in node.bases]
        for base, kind in zip(node.bases, kinds, strict=True):
            if kind is None:
                continue
            self._found.subclasses[node.name] = kind
            if not self._tree.calls_of(node.name):
                why = f"{node.name} is a class of its own: change its base class and its code by hand"
                none = [Placement(None, 0)]
                self._found.places.append(Place(kind, node.lineno, node.name, base, obstacles=[why], placements=none))

    def _subclass(self, node: ast.expr) -> Kind | None:
        """The kind of a class of the file, or of another one, that an expression names."""
        own = self._found.subclasses.get(dotted(node))
        return own or next(filter(None, map(self._imported, self._tree.imports.full_names(node))), None)

    def _read_reference(self, node: ast.Name | ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store | ast.Del):
            return
        kind = self._tree.imports.kind_of(node)
        if kind is None:
            self._read_other(node)
            return
        parent = self._tree.parents[node]
        if kind is Kind.PYSPARK:
            self._read_decorator(node, parent)
        elif isinstance(parent, ast.Call) and parent.func is node:
            self._add_call(kind, node, parent)
        elif isinstance(parent, ast.Attribute) and parent.attr == "partial":
            self._add_mapped(kind, node, parent)
        elif isinstance(parent, ast.ClassDef) and node in parent.bases:
            pass  # read before
        elif self._is_annotation(node):
            self._found.followers.append(node)
        elif isinstance(parent, ast.Attribute) or self._is_compared(node, parent):
            pass  # it makes no task
        else:
            why = f"{dotted(node)} is passed on, and its call is not in sight: move it by hand"
            self._found.places.append(Place(kind, node.lineno, "", node, obstacles=[why]))

    def _read_other(self, node: ast.Name | ast.Attribute) -> None:
        parent = self._tree.parents[node]
        if not (isinstance(parent, ast.Call) and parent.func is node):
            return
        kind = self._subclass(node)
        if kind is not None:
            place = self._add_call(kind, node, parent)
            where = "" if dotted(node) in self._found.subclasses else ", in another file"
            place.obstacles = [
                f"{dotted(node)} is a subclass of {kind}{where}: change its base class and its code by hand"
            ]
        elif self._tree.imports.is_other(node):
            name = next(name for name in OTHERS if self._tree.imports.is_airflow(node, name))
            self._found.others.append((name, node.lineno))

    @staticmethod
    def _is_compared(node: ast.expr, parent: ast.AST) -> bool:
        """True in `isinstance(task, Operator)`."""
        return (
            isinstance(parent, ast.Call)
            and node in parent.args[1:]
            and isinstance(parent.func, ast.Name)
            and parent.func.id in {"isinstance", "issubclass"}
        )

    def _is_annotation(self, node: ast.expr) -> bool:
        child: ast.AST = node
        for parent in self._tree.ancestors(node):
            if isinstance(parent, ast.arg | ast.AnnAssign) and child is parent.annotation:
                return True
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                return child is parent.returns
            if isinstance(parent, ast.stmt | ast.Call):
                return False
            child = parent
        return False

    # --- operators ------------------------------------------------------------------------------------------

    def _add_call(self, kind: Kind, reference: ast.expr, call: ast.Call) -> Place:
        place = Place(kind, reference.lineno, "", reference, (call,))
        self._read_keywords(place, call, Origin.CALL)
        self._finish(place, call)
        return place

    def _add_mapped(self, kind: Kind, reference: ast.expr, attribute: ast.Attribute) -> None:
        partial = self._tree.parents[attribute]
        method = self._tree.parents.get(partial)
        call = self._tree.parents.get(method) if method is not None else None
        place = Place(kind, reference.lineno, "", reference)
        if not (
            isinstance(partial, ast.Call) and isinstance(method, ast.Attribute) and isinstance(call, ast.Call)
        ) or method.attr not in {"expand", "expand_kwargs"}:
            place.obstacles.append("what .partial() is mapped over is not in sight: move the task by hand")
            self._found.places.append(place)
            return
        place.calls = (partial, call)
        self._read_keywords(place, partial, Origin.CALL)
        if method.attr == "expand":
            self._read_keywords(place, call, Origin.MAPPED)
        else:
            self._read_expand_kwargs(place, call)
        self._finish(place, call, expanded=self._dags.expanded(call))

    def _read_keywords(self, place: Place, call: ast.Call, origin: Origin) -> None:
        if call.args and not (origin is Origin.MAPPED and len(call.args) == 1):
            place.obstacles.append("it has arguments without names: give each its name")
        for keyword in call.keywords:
            value = self._tree.value(keyword.value)
            if keyword.arg is not None:
                place.parameters[keyword.arg] = Parameter(value, origin, keyword, call)
            elif origin is Origin.MAPPED:
                self._read_mapped_spread(place, keyword, value)
            elif isinstance(value, dict):
                self._read_spread(place, value, keyword, call)
            else:
                place.has_unknown = True
                place.open_spreads.append(keyword)
                place.notes.append(f"**{ast.unparse(keyword.value)[:60]} is known when it runs, and is kept")

    @staticmethod
    def _read_mapped_spread(place: Place, keyword: ast.keyword, values: Any) -> None:
        """`.expand(**x)`: a value in it stands for several tasks, so that nothing can be overridden there."""
        for name, value in values.items() if isinstance(values, dict) else [(None, values)]:
            if isinstance(name, str):
                place.parameters.setdefault(name, Parameter(value, Origin.MAPPED))
            else:
                place.has_unknown = True
                place.notes.append(f"**{ast.unparse(keyword.value)[:60]} is known when it runs, and is kept")

    @staticmethod
    def _read_spread(place: Place, values: dict[Any, Any], keyword: ast.keyword, call: ast.Call) -> None:
        for name, value in values.items():
            if isinstance(name, str):
                place.parameters.setdefault(name, Parameter(value, Origin.SPREAD, keyword, call))
            else:
                place.has_unknown = True
                place.open_spreads = list(dict.fromkeys([*place.open_spreads, keyword]))
                place.notes.append(f"{name} is known when it runs, and is kept")

    def _read_expand_kwargs(self, place: Place, call: ast.Call) -> None:
        values = self._tree.value(call.args[0]) if call.args else None
        if not isinstance(values, list) or not all(isinstance(one, dict) for one in values):
            place.has_unknown = True
            place.notes.append("the parameters of expand_kwargs are known when it runs, and are kept")
            if place.kind is Kind.LIVY:
                place.obstacles.append("the parameters of expand_kwargs are known when it runs: move the task by hand")
            return
        for name in dict.fromkeys(name for one in values for name in one):
            if isinstance(name, str):
                place.parameters[name] = Parameter([one.get(name) for one in values], Origin.MAPPED)

    def _finish(self, place: Place, call: ast.Call, *, expanded: int | None = 1) -> None:
        """Where the task is, and what `default_args` give it."""
        if self._tree.imports.is_by_star(place.reference) and place.kind is self._tree.imports.kind_of(place.reference):
            place.obstacles.append("its class is imported by *: name it in the import")
        task_id = place.parameters.get("task_id")
        place.task_id = str(task_id.value) if task_id is not None else ""
        dag = next((word.value for one in place.calls for word in one.keywords if word.arg == "dag"), None)
        place.placements = [
            replace(one, count=None if one.count is None or expanded is None else one.count * expanded)
            for one in self._dags.placements(call, dag)
        ]
        self._inherit(place, call)
        self._found.places.append(place)

    def _inherit(self, place: Place, call: ast.AST) -> None:
        levels: list[dict[Any, Any]] = []
        own = place.parameters.get("default_args")
        if own is not None and own.value:
            levels.append(own.value if isinstance(own.value, dict) else {Computed("default_args"): own.value})
        levels += self._of_groups(call)
        dags = list(dict.fromkeys(one.dag for one in place.placements if one.dag is not None))
        levels += [dict(dag.default_args) for dag in dags]
        place.default_names = frozenset(name for level in levels for name in level if isinstance(name, str))
        is_elsewhere = any(one.is_open for one in place.placements)
        if is_elsewhere or any(isinstance(name, Computed) for level in levels for name in level):
            place.has_unknown = place.has_open_defaults = True
            what = "its DAG is not in sight: its default_args count, and are" if is_elsewhere else _PART
            place.notes.append(f"{what} known when it runs")
        for level in levels:
            for name, value in level.items():
                if isinstance(name, str):
                    place.parameters.setdefault(name, Parameter(value, Origin.DEFAULT_ARGS))

    def _of_groups(self, node: ast.AST) -> Iterator[dict[Any, Any]]:
        """`default_args` of task groups around the task, the nearest first."""
        for parent in self._tree.ancestors(node):
            calls: list[ast.expr] = []
            if isinstance(parent, ast.With):
                calls = [item.context_expr for item in parent.items]
            elif isinstance(parent, ast.FunctionDef):
                calls = parent.decorator_list
            for call in calls:
                if isinstance(call, ast.Call) and self._tree.imports.is_airflow(call.func, "TaskGroup", "task_group"):
                    for keyword in call.keywords:
                        if keyword.arg == "default_args":
                            value = self._tree.value(keyword.value) or {}
                            yield value if isinstance(value, dict) else {Computed("default_args"): value}

    # --- decorated functions ----------------------------------------------------------------------------------

    def _read_decorator(self, reference: ast.expr, parent: ast.AST) -> None:
        place = Place(Kind.PYSPARK, reference.lineno, "", reference)
        call = parent if isinstance(parent, ast.Call) and parent.func is reference else None
        top: ast.AST = call or reference
        function = self._tree.parents[top]
        if call is not None:
            place.calls = (call,)
            self._read_keywords(place, call, Origin.CALL)
        if not (isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and top in function.decorator_list):
            place.obstacles.append("it does not stand above its function: write it as a decorator")
            self._found.places.append(place)
            return
        place.obstacles += obstacles_of_body(function, self._tree)
        self._read_overrides(place, function)
        task_id = place.parameters.get("task_id")
        place.task_id = str(task_id.value) if task_id is not None else function.name
        place.placements = self._placements_of(function)
        self._inherit(place, function)
        self._found.places.append(place)

    def _placements_of(self, function: Function) -> list[Placement]:
        """The function's own calls are its tasks."""
        return self._dags.placements(function.body[0])

    def _read_overrides(self, place: Place, function: Function) -> None:
        for node in self._tree.nodes:
            match node:
                case ast.Call(func=ast.Attribute(attr="override", value=ast.Name(id=name))) if name == function.name:
                    for keyword in node.keywords:
                        if keyword.arg in {"conn_id", None}:
                            place.obstacles.append(f"line {node.lineno}: .override() gives it another connection")
                        elif keyword.arg == "config_kwargs":
                            place.notes.append(f"line {node.lineno}: .override() gives it another conf")

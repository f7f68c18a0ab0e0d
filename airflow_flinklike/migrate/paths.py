"""Paths that a DAG file makes from literals and from its own place, such as `Path(__file__).parent / "jobs" / "a.py"`.

They are known where the file is read, and nowhere else: the report looks for scripts there, and no text is written from
them.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from airflow_flinklike.migrate.values import Evaluator, Scope, computed

_OF_PATHS: Mapping[str, Callable[[str], str]] = {
    "absolute": os.path.abspath,
    "abspath": os.path.abspath,
    "as_posix": str,
    "dirname": os.path.dirname,
    "expanduser": os.path.expanduser,
    "fspath": str,
    "normpath": os.path.normpath,
    "realpath": os.path.realpath,
    "resolve": os.path.realpath,
    "str": str,
}
"""Functions of one path, and methods of it without arguments."""

_JOINING = frozenset({"Path", "PosixPath", "PurePath", "PurePosixPath", "join", "joinpath"})


class PathEvaluator(Evaluator):
    """Knows paths as texts, beside what each Evaluator knows. `file` is the one whose expressions it reads."""

    def __init__(self, changed: frozenset[str], file: Path) -> None:
        super().__init__(changed)
        self._file = str(file.absolute())
        self._found: dict[ast.expr, Any] = {}
        self._readers[ast.Attribute] = self._attribute

    def value(self, node: ast.expr, scope: Scope, depth: int = 0) -> Any:
        """As of each Evaluator. A value is found once: an argument is read as a path, and as anything else then."""
        if node not in self._found:
            self._found[node] = super().value(node, scope, depth)
        return self._found[node]

    def _name(self, node: ast.Name, scope: Scope, depth: int) -> Any:
        return self._file if node.id == "__file__" else super()._name(node, scope, depth)

    def _operation(self, node: ast.BinOp, scope: Scope, depth: int) -> Any:
        if isinstance(node.op, ast.Div):
            parts = [self.value(node.left, scope, depth), self.value(node.right, scope, depth)]
            if _are_texts(parts):
                return str(PurePosixPath(*parts))
        return super()._operation(node, scope, depth)

    def _attribute(self, node: ast.Attribute, scope: Scope, depth: int) -> Any:
        value = self.value(node.value, scope, depth)
        if isinstance(value, str) and node.attr == "parent":
            return str(PurePosixPath(value).parent)
        if isinstance(value, str) and node.attr == "parents":
            return [str(one) for one in PurePosixPath(value).parents]
        return computed(node)

    def _call(self, node: ast.Call, scope: Scope, depth: int) -> Any:
        given = [self.value(one, scope, depth) for one in node.args]
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
            receiver = self.value(node.func.value, scope, depth)
            given = [receiver, *given] if isinstance(receiver, str) and name != "join" else given
        if _are_texts(given) and not node.keywords:
            if len(given) == 1 and name in _OF_PATHS:
                return _OF_PATHS[name](given[0])
            if given and name in _JOINING:
                return str(PurePosixPath(*given))
        return super()._call(node, scope, depth)


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)

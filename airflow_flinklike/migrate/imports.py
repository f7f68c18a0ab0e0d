"""The names that a file imports, and what an expression such as `spark_submit.SparkSubmitOperator` names by them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from airflow_flinklike.migrate.model import Kind

_OPERATORS = {
    "SparkSubmitOperator": Kind.SPARK_SUBMIT,
    "SparkSqlOperator": Kind.SPARK_SQL,
    "LivyOperator": Kind.LIVY,
    "pyspark_task": Kind.PYSPARK,
}
OTHERS = frozenset({"SparkJDBCOperator", "SparkPipelinesOperator", "SparkKubernetesOperator", "LivySensor"})
"""Classes of the same providers that have no counterpart here, or that look at tasks which move."""

ImportStatement = ast.Import | ast.ImportFrom


@dataclass(frozen=True, eq=False, slots=True)
class Import:
    """One name that a statement imports: `local` in the file, `full` with its module."""

    statement: ImportStatement
    alias: ast.alias
    local: str
    full: str

    @property
    def is_star(self) -> bool:
        """True for `from module import *`."""
        return self.alias.name == "*"


def imports_of(tree: ast.Module) -> list[Import]:
    """Every imported name, also of functions."""
    return [one for node in ast.walk(tree) for one in _imports(node)]


def _imports(node: ast.AST) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.partition(".")[0]
            yield Import(node, alias, alias.asname or root, alias.name if alias.asname else root)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (f"{node.module}." if node.module else "")
        for alias in node.names:
            yield Import(node, alias, alias.asname or alias.name, f"{module}{alias.name}")


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an expression that is nothing else, else ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


class ImportTable:
    """What the names of a file stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self.imports = imports_of(tree)
        self.stars = [one.full.removesuffix(".*") for one in self.imports if one.is_star]
        self._full: dict[str, list[str]] = {}
        for one in self.imports:
            self._full.setdefault(one.local, []).append(one.full)

    def full_names(self, node: ast.expr) -> list[str]:
        """The full names that an expression can stand for: several after `try: import` and `except: import`."""
        path = dotted(node)
        if not path:
            return []
        root, dot, rest = path.partition(".")
        found = [full + dot + rest for full in self._full.get(root, [])]
        return found or [f"{module}.{path}" for module in self.stars if module.startswith("airflow.") and not dot]

    def is_by_star(self, node: ast.expr) -> bool:
        """True for a name that no statement imports by itself."""
        return dotted(node).partition(".")[0] not in self._full

    def is_airflow(self, node: ast.expr, *names: str) -> bool:
        """True for an object of Airflow with one of these last names."""
        return any(full.startswith("airflow.") and full.rpartition(".")[2] in names for full in self.full_names(node))

    def kind_of(self, node: ast.expr) -> Kind | None:
        """The kind of task that an operator's class or a decorator makes."""
        for full in self.full_names(node):
            module, _, name = full.rpartition(".")
            if module.startswith("airflow.") and name in _OPERATORS:
                return _OPERATORS[name]
            if name == "pyspark" and module.startswith("airflow.") and module.endswith(".task"):
                return Kind.PYSPARK
        return None

    def is_other(self, node: ast.expr) -> bool:
        """True for a class of OTHERS."""
        return self.is_airflow(node, *OTHERS)

"""A parsed DAG file: its nodes with their parents and scopes, and the values and names in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from airflow_flinklike.migrate.imports import Import, ImportTable, dotted
from airflow_flinklike.migrate.values import Evaluator, Scope, ScopeNode, changed_names

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_IMPORTING = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)


class Tree:
    """One file. Raises SyntaxError, ValueError or RecursionError for a text that is no Python."""

    def __init__(self, text: str) -> None:
        self.module = ast.parse(text)
        self.nodes = list(ast.walk(self.module))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.imports = ImportTable(self.module)
        self._scopes: dict[ast.AST, Scope] = {}
        self.changed = changed_names(self.module)
        self._evaluator = Evaluator(self.changed)
        self._calls: dict[str, list[ast.Call]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Call) and (name := _called(node)):
                self._calls.setdefault(name, []).append(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, the nearest first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope(self, node: ast.AST) -> Scope:
        """The scope in which an expression is evaluated: decorators and defaults belong to the one outside."""
        child = node
        for parent in self.ancestors(node):
            if isinstance(parent, _SCOPES) and _is_inside(parent, child):
                return self._scope_of(parent)
            child = parent
        return self._scope_of(self.module)

    def _scope_of(self, node: ScopeNode) -> Scope:
        if node not in self._scopes:
            outer = None if isinstance(node, ast.Module) else self.scope(node)
            self._scopes[node] = Scope(node, outer)
        return self._scopes[node]

    def imports_in_reach(self, node: ast.expr) -> list[Import]:
        """The imports of an expression's first name: of the nearest function that has one, else of the module."""
        root = dotted(node).partition(".")[0]
        candidates = [one for one in self.imports.imports if one.local == root]
        for scope in self.ancestors(node) if candidates else ():
            if isinstance(scope, _IMPORTING):
                near = [one for one in candidates if self._importing(one.statement) is scope]
                if near:
                    return near
        return []

    def _importing(self, statement: ast.stmt) -> ast.AST:
        return next(node for node in self.ancestors(statement) if isinstance(node, _IMPORTING))

    def value(self, node: ast.expr) -> Any:
        """The value of an expression where it stands."""
        return self._evaluator.value(node, self.scope(node))

    def meant(self, node: ast.expr | None) -> ast.expr | None:
        """The expression itself, or what the name stands for."""
        for _ in range(10):
            found = self.scope(node).find(node.id) if isinstance(node, ast.Name) else None
            if found is None:
                break
            node = found[0]
        return node

    def calls_of(self, name: str) -> list[ast.Call]:
        """The calls by which a function of that name makes tasks or DAGs, `f.override(...)(...)` and the like too."""
        return self._calls.get(name, [])


def _called(node: ast.Call) -> str:
    """The function that a call is about; "" for calls that are only a step to the one that counts."""
    match node.func:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr="expand" | "expand_kwargs", value=inner) | (ast.Call() as inner):
            while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                if inner.func.attr not in {"override", "partial"}:
                    return ""
                inner = inner.func.value
            return inner.id if isinstance(inner, ast.Name) else ""
        case _:
            return ""


def _is_inside(parent: ast.AST, child: ast.AST) -> bool:
    if isinstance(parent, ast.Module):
        return True
    if isinstance(parent, ast.Lambda):
        return child is parent.body
    return isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and child in parent.body

"""Values of expressions, as far as the text of a file tells them. Nothing of the file is executed.

A name has a value where its scope binds it once, by a plain assignment, and nothing in the file changes the object.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from airflow_flinklike.migrate.model import Computed, end_of

_DEPTH_MAX = 50
_TEXT_MAX = 80
_CHANGING = frozenset({"append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
ScopeNode = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


def computed(node: ast.AST, end: object = "") -> Computed:
    """The mark of a value that only a run knows, but for its end."""
    text = " ".join(ast.unparse(node).split())
    return Computed(text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 3] + "...", end_of(end))


def has_computed(value: Any) -> bool:
    """True if a part of the value is known only when the file runs."""
    if isinstance(value, dict):
        return any(has_computed(key) or has_computed(one) for key, one in value.items())
    return any(map(has_computed, value)) if isinstance(value, list) else isinstance(value, Computed)


class Scope:
    """The names of a module or function, and those around it."""

    def __init__(self, node: ScopeNode, outer: Scope | None = None) -> None:
        self.node = node
        self.outer = outer
        self.bound: dict[str, ast.expr | None] = {}
        """Name -> its only value; None: bound otherwise, or more than once."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    self.bound[argument.arg] = None
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        for statement in body:
            self._read(statement, is_plain=True)

    def _read(self, node: ast.AST, *, is_plain: bool) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_plain:
                self._bind(name, value)
                self._read(value, is_plain=False)
                return
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if is_plain:
                self._bind(name, value)
                self._read(value, is_plain=False)
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._bind(node.name, None)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                self._bind(name, None)
            case ast.alias():
                self._bind((node.asname or node.name).partition(".")[0], None)
            case ast.ExceptHandler(name=str(name)):
                self._bind(name, None)
            case _:
                pass
        self._read_children(node, is_plain=is_plain and isinstance(node, ast.With | ast.AsyncWith))

    def _read_children(self, node: ast.AST, *, is_plain: bool) -> None:
        if isinstance(node, _FUNCTIONS):
            return
        for child in ast.iter_child_nodes(node):
            self._read(child, is_plain=is_plain)

    def _bind(self, name: str, value: ast.expr | None) -> None:
        self.bound[name] = None if name in self.bound else value

    def find(self, name: str) -> tuple[ast.expr, Scope] | None:
        """The expression that a name stands for, and where it is evaluated; None if that is not known."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bound:
                value = scope.bound[name]
                return None if value is None else (value, scope)
            scope = scope.outer
            while scope is not None and isinstance(scope.node, ast.ClassDef):  # functions do not see class bodies
                scope = scope.outer
        return None


def changed_names(tree: ast.AST) -> frozenset[str]:
    """Names whose object the file changes in place, such as by `x["key"] = ...` or `x.update(...)`."""
    return frozenset(_changed(tree))


def _changed(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                yield name
            case ast.Subscript(value=ast.Subscript(value=ast.Name(id=name)), ctx=ast.Store() | ast.Del()):
                yield name
            case ast.Call(func=ast.Attribute(attr=attr, value=ast.Name(id=name))) if attr in _CHANGING:
                yield name
            case ast.AugAssign(target=ast.Name(id=name)):
                yield name
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
            case _:
                pass


class Evaluator:
    """Evaluates expressions of one file."""

    def __init__(self, changed: frozenset[str]) -> None:
        self._changed = changed
        self._readers: dict[type[ast.expr], Callable[[Any, Scope, int], Any]] = {
            ast.Name: self._name,
            ast.List: self._sequence,
            ast.Tuple: self._sequence,
            ast.Set: self._sequence,
            ast.Dict: self._dict,
            ast.JoinedStr: self._joined,
            ast.FormattedValue: self._formatted,
            ast.UnaryOp: self._negative,
            ast.BinOp: self._operation,
            ast.Subscript: self._item,
            ast.Call: self._call,
        }

    def value(self, node: ast.expr, scope: Scope, depth: int = 0) -> Any:
        """A literal value, whose unknown parts are `Computed`. Lists stand for tuples and sets too."""
        reader = self._readers.get(type(node))
        if isinstance(node, ast.Constant):
            return node.value
        return computed(node) if reader is None or depth > _DEPTH_MAX else reader(node, scope, depth + 1)

    def _name(self, node: ast.Name, scope: Scope, depth: int) -> Any:
        found = None if node.id in self._changed else scope.find(node.id)
        return computed(node) if found is None else self._known(node, self.value(*found, depth))

    def _dict(self, node: ast.Dict, scope: Scope, depth: int) -> Any:
        return self._mapping(list(zip(node.keys, node.values, strict=True)), scope, depth)

    def _formatted(self, node: ast.FormattedValue, scope: Scope, depth: int) -> Any:
        is_plain = node.conversion == -1 and node.format_spec is None
        return self.value(node.value, scope, depth) if is_plain else computed(node)

    def _negative(self, node: ast.UnaryOp, scope: Scope, depth: int) -> Any:
        value = self.value(node.operand, scope, depth)
        is_number = isinstance(node.op, ast.USub) and isinstance(value, int | float)
        return -value if is_number else computed(node)

    @staticmethod
    def _known(node: ast.expr, value: Any) -> Any:
        return computed(node, value) if isinstance(value, Computed) else value

    def _sequence(self, node: ast.List | ast.Tuple | ast.Set, scope: Scope, depth: int) -> Any:
        found: list[Any] = []
        for element in node.elts:
            if not isinstance(element, ast.Starred):
                found.append(self.value(element, scope, depth))
                continue
            several = self.value(element.value, scope, depth)
            if not isinstance(several, list):
                return computed(node)
            found += several
        return found

    def _mapping(self, pairs: list[tuple[ast.expr | None, ast.expr]], scope: Scope, depth: int) -> dict[Any, Any]:
        """Of an unknown `**x` the key is `Computed`, as its value is."""
        found: dict[Any, Any] = {}
        for key, value in pairs:
            one = self.value(value, scope, depth)
            if key is not None:
                name = self.value(key, scope, depth)
                found[name if _is_key(name) else computed(key)] = one
            elif isinstance(one, dict):
                found |= one
            else:
                found[Computed(f"**{computed(value)}")] = computed(value)
        return found

    def _joined(self, node: ast.JoinedStr, scope: Scope, depth: int) -> Any:
        parts = [self.value(part, scope, depth) for part in node.values]
        if any(not isinstance(part, str | int | float) for part in parts):
            return computed(node, parts[-1])
        return "".join(map(str, parts))

    def _operation(self, node: ast.BinOp, scope: Scope, depth: int) -> Any:
        left, right = self.value(node.left, scope, depth), self.value(node.right, scope, depth)
        match node.op, left, right:
            case ast.BitOr(), dict(), dict():
                return left | right
            case ast.Add(), str(), str():
                return left + right
            case ast.Add(), list(), list():
                return left + right
            case ast.Mult(), int() | float(), int() | float():
                return left * right
            case ast.Add() | ast.Div(), _, str() | Computed():  # a path, or a text
                return computed(node, right)
            case _:
                return computed(node)

    def _item(self, node: ast.Subscript, scope: Scope, depth: int) -> Any:
        value, index = self.value(node.value, scope, depth), self.value(node.slice, scope, depth)
        if isinstance(value, dict) and _is_key(index) and index in value:
            return value[index]
        if isinstance(value, list) and isinstance(index, int) and -len(value) <= index < len(value):
            return value[index]
        return computed(node)

    def _call(self, node: ast.Call, scope: Scope, depth: int) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        named = [(ast.Constant(word.arg) if word.arg else None, word.value) for word in node.keywords]
        if name == "dict" and len(node.args) <= 1:
            return self._mapping([*((None, one) for one in node.args), *named], scope, depth)
        given = [self.value(one, scope, depth) for one in node.args]
        if name == "timedelta" and len(given) <= 1:
            words = self._mapping([*named], scope, depth)
            return _timedelta(node, words | ({"days": given[0]} if given else {}))
        if name == "copy" and isinstance(node.func, ast.Attribute) and not given:
            return self._known(node, self.value(node.func.value, scope, depth))
        if name == "join" and isinstance(node.func, ast.Attribute) and len(given) == 1:
            return _text_joined(node, self.value(node.func.value, scope, depth), given[0])
        return computed(node) if named else _built_in(node, name, given)


def _text_joined(node: ast.Call, separator: Any, parts: Any) -> Any:
    is_text = isinstance(separator, str) and isinstance(parts, list) and all(isinstance(part, str) for part in parts)
    return separator.join(parts) if is_text else computed(node)


def _built_in(node: ast.Call, name: str, given: list[Any]) -> Any:
    match name, given:
        case "list" | "tuple", [list() as value]:
            return value
        case "copy" | "deepcopy", [dict() | list() as value]:
            return value
        case "range", [_, *_]:
            return _range(node, given)
        case "Path" | "PurePosixPath" | "fspath" | "join" | "str", [*_, end]:
            return computed(node, end)
        case _:
            return computed(node)


def _is_key(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | Computed | None)


def _range(node: ast.Call, bounds: list[Any]) -> Any:
    if len(bounds) > 3 or not all(isinstance(bound, int) for bound in bounds) or bounds[2:] == [0]:
        return computed(node)
    numbers = range(*bounds)
    return [*numbers] if len(numbers) <= 10_000 else computed(node)


def _timedelta(node: ast.Call, given: dict[Any, Any]) -> Any:
    if any(not isinstance(value, int | float) for value in given.values()):
        return computed(node)
    try:
        return timedelta(**given)
    except (TypeError, OverflowError):
        return computed(node)

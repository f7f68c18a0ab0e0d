"""The calls of a script that run when it does, found in its text, and those that may run.

A function runs when code that runs has its name; others may call one that is decorated, a method of a derived class,
and any function where code looks names up. A branch may run, unless its condition is known: `False`,
`__name__ == "__main__"`, `TYPE_CHECKING`. What is behind a `return` in a branch may run too. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Part = tuple[ast.AST, bool]

_MAYBE = (
    ast.IfExp,
    ast.BoolOp,
    ast.Match,
    ast.ExceptHandler,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


_BY_NAME = frozenset({"Fire", "eval", "exec", "getattr", "globals", "import_module", "locals", "vars"})
"""With these a script may call a function whose name it does not have."""


def reached_calls(tree: ast.Module) -> list[tuple[ast.Call, bool]]:
    """In the order of the text, of a chain the first one first; True for those that surely run."""
    reached = _reached_functions(tree)
    return [(node, certain) for node, certain in _walk(tree, reached, is_certain=True) if isinstance(node, ast.Call)]


def _reached_functions(tree: ast.Module) -> dict[ast.AST, bool]:
    """Functions that run, and those that may run (False). The code of each is looked at twice at most."""
    by_name: dict[str, list[_Function]] = {}
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            by_name.setdefault(node.name, []).append(node)
    everything = [one for same in by_name.values() for one in same]
    reached: dict[ast.AST, bool] = {}
    to_look_at: list[_Part] = [(tree, True)]

    def reach(functions: Iterable[ast.AST], *, is_certain: bool) -> None:
        for one in functions:
            if one not in reached or (is_certain and not reached[one]):
                reached[one] = is_certain
                to_look_at.append((one, is_certain))

    reach(_called_by_others(tree), is_certain=False)
    while to_look_at:
        code, is_code_certain = to_look_at.pop()
        for node, is_certain in _walk(code, {code: True}, is_certain=is_code_certain):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            reach(everything if name in _BY_NAME else (), is_certain=False)
            reach(by_name.get(name, ()), is_certain=is_certain)
    return reached


def _called_by_others(tree: ast.Module) -> set[ast.AST]:
    methods = (one for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.bases for one in node.body)
    own = (node for node in ast.walk(tree) if isinstance(node, _Function))
    unseen = {*methods, *(one for one in own if one.decorator_list or one.name.startswith("__"))}
    return {one for one in unseen if isinstance(one, _Function)}


def _walk(node: ast.AST, reached: Mapping[ast.AST, bool], *, is_certain: bool) -> Iterator[_Part]:
    for part, is_certain_in_it in _parts(node, reached):
        yield from _walk(part, reached, is_certain=is_certain and is_certain_in_it)
    yield node, is_certain


def _parts(node: ast.AST, reached: Mapping[ast.AST, bool]) -> Iterator[_Part]:
    """The parts of a node, as far as they may run, with whether they run when the node does."""
    match node:
        case ast.If(test=test, body=body, orelse=orelse):
            known = _known(test)
            yield test, True
            yield from _block(body if known is not False else (), is_certain=known is True)
            yield from _block(orelse if known is not True else (), is_certain=known is False)
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            yield from ((one, True) for one in (*node.decorator_list, node.args))
            yield from _block(body if node in reached else (), is_certain=reached.get(node, False))
        case ast.Module(body=body):
            yield from _block(body, is_certain=True)
        case ast.For() | ast.AsyncFor() | ast.While():
            yield node.test if isinstance(node, ast.While) else node.iter, True
            yield from _block((*node.body, *node.orelse), is_certain=False)
        case _:
            yield from ((one, not isinstance(node, _MAYBE)) for one in ast.iter_child_nodes(node))


def _block(statements: Iterable[ast.stmt], *, is_certain: bool) -> Iterator[_Part]:
    for statement in statements:
        yield statement, is_certain
        is_certain = is_certain and not _may_leave(statement)


def _may_leave(statement: ast.AST) -> bool:
    """True if a `return` may be in it: what is behind it runs only when that does not."""
    if isinstance(statement, _Function | ast.ClassDef | ast.Lambda):
        return False
    return isinstance(statement, ast.Return) or any(map(_may_leave, ast.iter_child_nodes(statement)))


def _known(test: ast.expr) -> bool | None:
    """The value of a condition that is the same in each run; else None."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            known = _known(operand)
            return None if known is None else not known
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
        case ast.Compare(left=ast.Name(id="__name__"), ops=[op], comparators=[ast.Constant(value="__main__")]):
            return {ast.Eq: True, ast.NotEq: False}.get(type(op))
        case _:
            return None

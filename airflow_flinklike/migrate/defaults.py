"""`default_args` in the call of a DAG: what has no effect goes, if nothing but tasks that move takes from them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping

from airflow_flinklike.migrate.finding import Found
from airflow_flinklike.migrate.model import Judgement, Place
from airflow_flinklike.migrate.parameters import DROPPED
from airflow_flinklike.migrate.tree import Tree

_CHAINING = frozenset({"chain", "set_downstream", "set_upstream"})


def idle_defaults(found: Found, judgements: Mapping[Place, Judgement]) -> dict[ast.Dict, frozenset[str]]:
    """Literal `default_args`, with the names in them that have no effect for any task of their DAG."""
    blocks: dict[ast.With, list[Place]] = {}
    for place in found.places:
        for one in _blocks(found.tree, place):
            blocks.setdefault(one, []).append(place)
    uses = Counter(node.id for node in found.tree.nodes if isinstance(node, ast.Name))
    idle: dict[ast.Dict, frozenset[str]] = {}
    for block, places in blocks.items():
        literal = _literal_defaults(found.tree, block.items[0].context_expr)
        name = block.items[0].optional_vars
        is_passed_on = name is not None and not (isinstance(name, ast.Name) and uses[name.id] == 1)
        if literal is None or is_passed_on or not _has_nothing_else(block, places):
            continue
        if all(judgements[place].moves for place in places):
            names = frozenset.intersection(*(frozenset(DROPPED[place.kind]) for place in places))
            idle[literal] = names & {key.value for key in literal.keys if isinstance(key, ast.Constant)}
    return idle


def idle_names(tree: Tree, place: Place, idle: Mapping[ast.Dict, frozenset[str]]) -> frozenset[str]:
    """The names that go from the `default_args` of the place's DAG."""
    literals = [_literal_defaults(tree, block.items[0].context_expr) for block in _blocks(tree, place)]
    return frozenset().union(*(idle.get(one, frozenset()) for one in literals if one is not None))


def _blocks(tree: Tree, place: Place) -> list[ast.With]:
    return [one for one in tree.ancestors(place.reference) if isinstance(one, ast.With) and len(one.items) == 1]


def _literal_defaults(tree: Tree, node: ast.expr) -> ast.Dict | None:
    if not (isinstance(node, ast.Call) and tree.imports.is_airflow(node.func, "DAG")):
        return None
    given = [one.value for one in node.keywords if one.arg == "default_args"]
    return given[0] if given and isinstance(given[0], ast.Dict) else None


def _has_nothing_else(block: ast.With, places: Collection[Place]) -> bool:
    """True if no other call in the block could make a task. What stands in the call of a task makes none."""
    own = {call for place in places for call in place.calls}
    left: list[ast.AST] = [*block.body]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            return False
        if isinstance(node, ast.Call) and node not in own:
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name not in _CHAINING:
                return False
        left += () if node in own else ast.iter_child_nodes(node)
    return True

"""Mappings that several calls take with `**`: they can be changed only if all that use them move alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from airflow_flinklike.migrate.finding import Found
from airflow_flinklike.migrate.model import Act, Change, Judgement, Origin, Place, Verdict
from airflow_flinklike.migrate.tree import Tree


def definition_of(tree: Tree, place: Place, name: str) -> ast.expr | None:
    """The literal mapping, `{...}` or `dict(...)`, from which a place takes a parameter; None if it is not plain."""
    for call in place.calls:
        for keyword in call.keywords:
            if keyword.arg is None:
                meant = tree.meant(keyword.value)
                if meant is not None and name in _names(meant):
                    return meant
    return None


def _names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Dict):
        return [key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return [keyword.arg for keyword in node.keywords if keyword.arg is not None]
    return []


def stays(judgement: Judgement, why: str) -> Judgement:
    """The same task, if it has to stay."""
    reasons = judgement.reasons if why in judgement.reasons else (*judgement.reasons, why)
    return Judgement(Verdict.STAYS, reasons, judgement.notes if not judgement.moves else ())


def settle(found: Found, judgements: Mapping[Place, Judgement]) -> dict[Place, Judgement]:
    """The judgements, where a place stays if a mapping that it shares cannot be changed."""
    settled = dict(judgements)
    is_changed = True
    while is_changed:
        is_changed = False
        for place in found.places:
            why = next(_problems(found, settled, place), None) if settled[place].moves else None
            if why is not None:
                settled[place] = stays(settled[place], why)
                is_changed = True
    return settled


def _problems(found: Found, judgements: Mapping[Place, Judgement], place: Place) -> Iterator[str]:
    for change in judgements[place].changes:
        given = place.parameters.get(change.name)
        if given is None or given.origin is not Origin.SPREAD or change.act not in {Act.DROP, Act.RENAME}:
            continue
        definition = definition_of(found.tree, place, change.name)
        if definition is None:
            yield f"{change.name} comes from a ** whose mapping is not in sight: give it in the call"
        elif not _is_shared_alike(found, judgements, definition, change):
            yield f"{change.name} comes from a ** that others use too: give it in the call"


def _is_shared_alike(found: Found, judgements: Mapping[Place, Judgement], definition: ast.expr, change: Change) -> bool:
    """True if each use of the mapping is a `**` of a task that moves with the same change."""
    users = {
        keyword.value: place
        for place in found.places
        for call in place.calls
        for keyword in call.keywords
        if not keyword.arg
    }
    if definition in users:
        return True
    parent = found.tree.parents[definition]
    target = parent.targets[0] if isinstance(parent, ast.Assign) else getattr(parent, "target", None)
    if not isinstance(target, ast.Name):
        return False
    for node in found.tree.nodes:
        if not (isinstance(node, ast.Name) and node.id == target.id and node is not target):
            continue
        place = users.get(node)
        if place is None:
            return False
        changes = {(one.act, one.name, one.text) for one in judgements[place].changes if one.act is not Act.SET}
        if not judgements[place].moves or (change.act, change.name, change.text) not in changes:
            return False
    return True

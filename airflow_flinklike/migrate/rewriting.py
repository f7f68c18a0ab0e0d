"""Writes the changes of a file's tasks into its text."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping

from airflow_flinklike.migrate.edits import (
    Edit,
    OverlappingEditsError,
    Segment,
    Source,
    apply_edits,
    insert_element,
    remove_segments,
)
from airflow_flinklike.migrate.finding import Found
from airflow_flinklike.migrate.import_edits import Reference, import_edits, new_names
from airflow_flinklike.migrate.model import Act, Change, Judgement, Origin, Place
from airflow_flinklike.migrate.shared import definition_of


class RewriteError(Exception):
    """The changed text would be no Python. Nothing is changed then."""


def rewrite(text: str, found: Found, judgements: Mapping[Place, Judgement]) -> str:
    """The text with all tasks moved that move. Raises RewriteError."""
    moving = [place for place in found.places if judgements[place].moves]
    if not moving:
        return text
    source = Source(text)
    edits = [edit for place in moving for edit in _of_place(source, place, judgements[place].changes)]
    edits += _of_definitions(source, found, moving, judgements)
    references = [Reference(place.reference, place.kind) for place in moving if _is_renamed(place)]
    edits += _of_references(source, references)
    staying = {place.kind for place in found.places if not judgements[place].moves}
    followers = [
        Reference(node, kind)
        for node in found.followers
        if (kind := found.tree.imports.kind_of(node)) is not None and kind not in staying
    ]
    edits += _of_references(source, followers)
    edits += import_edits(source, found.tree, [*references, *followers])
    try:
        changed = apply_edits(text, edits)
        ast.parse(changed)
    except (OverlappingEditsError, SyntaxError, ValueError, RecursionError) as error:
        message = f"the change cannot be written: {error}"
        raise RewriteError(message) from error
    return changed


def _is_renamed(place: Place) -> bool:
    """False for `task.pyspark`, whatever `task` is called: it becomes `task.flinklike` by its last word alone."""
    return not (isinstance(place.reference, ast.Attribute) and place.reference.attr == "pyspark")


def _of_place(source: Source, place: Place, changes: Iterable[Change]) -> Iterator[Edit]:
    if not _is_renamed(place):
        _, end = source.span(place.reference)
        yield Edit(end - len("pyspark"), end, "flinklike")
    dropped: dict[ast.Call, list[ast.keyword]] = {}
    added: list[str] = []
    keys: list[Change] = []
    for change in changes:
        given = place.parameters.get(change.name)
        keyword = given.keyword if given is not None else None
        if keyword is None or given is None or given.call is None:
            if change.act is Act.SET and (given is None or given.origin is not Origin.SPREAD or _replaces(change)):
                added.append(f"{change.name}={change.text}")
            continue
        start, end = source.span(keyword)
        if change.act is Act.DROP:
            dropped.setdefault(given.call, []).append(keyword)
        elif change.act is Act.DROP_KEY:
            keys.append(change)
        elif change.act is Act.RENAME:
            yield Edit(start, start + len(change.name), change.text)
        else:
            yield Edit(start, end, f"{change.name}={change.text}")
    yield from _of_calls(source, place, dropped, added)
    if keys and (conf := place.parameters[keys[0].name].keyword) is not None:
        yield from _of_definition(source, conf.value, {change.text: Change(Act.DROP, change.text) for change in keys})


def _replaces(change: Change) -> bool:
    """True for a connection that is taken out of a spread mapping, and given in the call."""
    return change.name == "conn_id"


def _of_calls(
    source: Source, place: Place, dropped: Mapping[ast.Call, list[ast.keyword]], added: list[str]
) -> Iterator[Edit]:
    for call in place.calls:
        segments = source.segments(opening_of(source, call))
        gone = [_index(source, segments, keyword) for keyword in dropped.get(call, ())]
        new = added if call is place.calls[0] else []
        if new and gone and len(gone) >= 1:
            # The first one that goes makes room for the new ones.
            segment = segments[gone[0]]
            yield Edit(segment.start, segment.end, ", ".join(new))
            gone = gone[1:]
        elif new and segments:
            yield insert_element(source, segments, len(call.args), ", ".join(new))
        elif new:
            position = opening_of(source, call) + 1
            yield Edit(position, position, ", ".join(new))
        yield from remove_segments(source, segments, gone)
    if added and not place.calls:  # `@task.pyspark` without brackets
        _, end = source.span(place.reference)
        yield Edit(end, end, f"({', '.join(added)})")


def opening_of(source: Source, call: ast.Call) -> int:
    """The bracket of a call's arguments."""
    return source.bracket_after(source.span(call.func)[1])


def _index(source: Source, segments: list[Segment], node: ast.keyword | ast.expr) -> int:
    start, _ = source.span(node)
    return next(index for index, one in enumerate(segments) if one.start <= start < one.end)


def _of_references(source: Source, references: Iterable[Reference]) -> Iterator[Edit]:
    for reference in references:
        start, end = source.span(reference.node)
        yield Edit(start, end, new_names(reference.kind)[1])


def _of_definitions(
    source: Source, found: Found, moving: Iterable[Place], judgements: Mapping[Place, Judgement]
) -> Iterator[Edit]:
    """Take what the cluster does not know out of mappings that calls take with `**`, where `shared` allows it."""
    wanted: dict[ast.expr, dict[str, Change]] = {}
    for place in moving:
        for change in judgements[place].changes:
            given = place.parameters.get(change.name)
            if given is None or given.origin is not Origin.SPREAD or change.act not in {Act.DROP, Act.RENAME}:
                continue
            definition = definition_of(found.tree, place, change.name)
            if definition is not None:
                wanted.setdefault(definition, {})[change.name] = change
    for definition, changes in wanted.items():
        yield from _of_definition(source, definition, changes)


def _of_definition(source: Source, node: ast.expr, changes: Mapping[str, Change]) -> Iterator[Edit]:
    start, _ = source.span(node)
    opening = opening_of(source, node) if isinstance(node, ast.Call) else start
    segments = source.segments(opening)
    gone = []
    for name, element in elements_of(node):
        change = changes.get(name)
        if change is None:
            continue
        if change.act is Act.DROP:
            gone.append(_index(source, segments, element))
        elif isinstance(element, ast.keyword):
            first, _ = source.span(element)
            yield Edit(first, first + len(name), change.text)
        else:
            yield Edit(*source.span(element), json.dumps(change.text))
    yield from remove_segments(source, segments, gone)


def elements_of(node: ast.expr) -> Iterator[tuple[str, ast.keyword | ast.expr]]:
    """The names of a literal mapping, with the keyword or the key that has each."""
    if isinstance(node, ast.Dict):
        for key in node.keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, key
    elif isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg is not None:
                yield keyword.arg, keyword

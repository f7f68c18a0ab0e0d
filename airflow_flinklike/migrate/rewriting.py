"""Writes the changes of a file's tasks into its text."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping

from airflow_flinklike.migrate.defaults import idle_defaults
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


class RewriteError(Exception):
    """The changed text would be no Python. Nothing is changed then."""


def rewrite(text: str, found: Found, judgements: Mapping[Place, Judgement]) -> str:
    """The text with all tasks moved that move. Raises RewriteError."""
    moving = [place for place in found.places if judgements[place].moves]
    if not moving:
        return text
    source = Source(text)
    edits = [edit for place in moving for edit in _of_place(source, place, judgements[place].changes)]
    for literal, names in idle_defaults(found, judgements).items():
        edits += _without_keys(source, literal, names)
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
    overridden: dict[ast.keyword, list[Change]] = {}
    for change in changes:
        given = place.parameters.get(change.name)
        spread = spread_of(place, change.name)
        keyword = None if given is None or given.origin is Origin.SPREAD else given.keyword
        if change.act is Act.DROP_KEY:
            keys.append(change)
        elif change.act is Act.SET and spread is not None:
            overridden.setdefault(spread, []).append(change)
        elif keyword is None or given is None or given.call is None:
            added += [f"{change.name}={change.text}"] if change.act is Act.SET else []
        elif change.act is Act.DROP:
            dropped.setdefault(given.call, []).append(keyword)
        else:
            start, end = source.span(keyword)
            is_renamed = change.act is Act.RENAME
            name, text = (change.name, change.text) if is_renamed else ("", f"{change.name}={change.text}")
            yield Edit(start, start + len(name) if is_renamed else end, text)
    yield from _of_calls(source, place, dropped, added)
    for spread, several in overridden.items():
        yield from _of_spread(source, spread, several)
    if keys and (conf := place.parameters[keys[0].name].keyword) is not None:
        yield from _without_keys(source, conf.value, {change.text for change in keys})


def spread_of(place: Place, name: str) -> ast.keyword | None:
    """The mapping taken with `**` that gives a place the parameter, or may give it; None if the call itself says."""
    given = place.parameters.get(name)
    if given is not None and given.origin is Origin.SPREAD:
        return given.keyword
    if given is not None and given.origin is not Origin.DEFAULT_ARGS:
        return None
    return place.open_spreads[0] if place.open_spreads else None


def _of_spread(source: Source, spread: ast.keyword, changes: Iterable[Change]) -> Iterator[Edit]:
    """`**x` as `**{**x, "name": text}`: others may take the mapping too, so that it stays as it is."""
    start, end = source.span(spread)
    is_plain = isinstance(spread.value, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Dict)
    opening, closing = ("{**", "") if is_plain else ("{**(", ")")
    yield Edit(start + len("**"), start + len("**"), opening)
    yield Edit(end, end, "".join([closing, *(f', "{change.name}": {change.text}' for change in changes), "}"]))


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


def _without_keys(source: Source, node: ast.expr, names: Collection[str]) -> Iterator[Edit]:
    """A literal mapping without these keys."""
    assert isinstance(node, ast.Dict)
    segments = source.segments(source.span(node)[0])
    gone = [_index(source, segments, key) for key in node.keys if isinstance(key, ast.Constant) and key.value in names]
    yield from remove_segments(source, segments, gone)

"""What becomes of a task: a table-driven function from its parameters to a verdict."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from airflow_flinklike.migrate.changing import DEFAULT_CONN_ID, changes_of, notes_of_changes
from airflow_flinklike.migrate.confs import (
    NAME_OF_CONF,
    OFFER,
    confs_of,
    effective,
    environment_of,
    is_conf_text,
    is_templated,
    key_of,
    literal,
    paths_of,
)
from airflow_flinklike.migrate.model import (
    Act,
    Change,
    Computed,
    Judgement,
    Kind,
    Origin,
    Place,
    Verdict,
    end_of,
    says_something,
)
from airflow_flinklike.migrate.noting import notes_of, notes_of_starts
from airflow_flinklike.migrate.parameters import (
    CONNECTIONS,
    DROPPED,
    HOLDING,
    KEPT,
    OF_AIRFLOW,
    PLACES_OF_DRIVERS,
    RENAMED,
)
from runtime.common.spark_conf import conf_text
from runtime.common.spark_environments import refused_static_conf

_FILES = ("py_files", "files", "archives", "jars")
_PATTERN = re.compile(r"[*?\[{]")


def judge(place: Place, conn_id: str = DEFAULT_CONN_ID) -> Judgement:
    """What becomes of the tasks of a place, whose connection to the cluster is to be `conn_id`. Never raises."""
    changes = [*changes_of(place, conn_id)]
    reasons = [*place.obstacles, *_holding(place), *_unreachable(place, changes), *_of_values(place)]
    conf = [*confs_of(place)]
    for one in conf:
        reasons += [reason for reason in refused_static_conf(literal(one), [OFFER]) if reason not in reasons]
    if reasons:
        reasons += _how_to_drop(place)
        return Judgement(Verdict.STAYS, tuple(dict.fromkeys(reasons)), tuple(place.notes))
    script = place.script_conf or {}
    specs = [environment_of(one, script, is_jar=place.is_jar) for one in conf]
    started = [spec for spec in specs if spec is not None and not spec.is_default]
    notes = (*place.notes, *notes_of(place), *notes_of_starts(started), *notes_of_changes(changes))
    memory = max((spec.memory_bytes for spec in started), default=0)
    if place.is_jar:
        return Judgement(Verdict.JAR, (), notes, tuple(changes), memory_bytes=memory)
    keys = tuple(dict.fromkeys(map(key_of, specs)))
    if keys in {("",), ()}:
        return Judgement(Verdict.MOVES, (), notes, tuple(changes))
    static = {key: conf_text(value) for one in (script, *conf) for key, value in effective(one).items()}
    return Judgement(Verdict.ENVIRONMENT, (), notes, tuple(changes), keys, static, memory)


def _holding(place: Place) -> Iterator[str]:
    kind = place.kind
    known = OF_AIRFLOW | KEPT[kind] | RENAMED[kind].keys() | DROPPED[kind].keys() | {CONNECTIONS[kind]}
    known |= {"polling_interval"} if kind is Kind.LIVY else set()
    for name, given in place.parameters.items():
        if name in HOLDING[kind]:
            if isinstance(given.value, Computed):
                yield f"{name} is known when it runs; with a value it holds the task: {HOLDING[kind][name]}"
            elif says_something(given.value):
                yield f"{name}: {HOLDING[kind][name]}"
        elif name not in known and given.origin is not Origin.DEFAULT_ARGS:
            yield f"{name}: no parameter of this name is known; take it out, or move the task by hand"
    if kind is Kind.LIVY and "polling_interval" in place.parameters:
        interval, deferrable = place.parameters["polling_interval"].value, place.parameters.get("deferrable")
        if isinstance(interval, Computed) and not (deferrable is not None and deferrable.value is True):
            yield "polling_interval is known when it runs: whether the task waits for the end is not known"


def _unreachable(place: Place, changes: Sequence[Change]) -> Iterator[str]:
    """Parameters that have to change, and that stand where the rewrite changes nothing."""
    for change in changes:
        given = place.parameters.get(change.name)
        if given is None or change.act in {Act.SET, Act.DROP_KEY}:
            continue
        if given.origin is Origin.DEFAULT_ARGS:
            yield f"{change.name} comes from default_args, where it would have to be {change.text}: give it in the call"
        elif given.origin is Origin.SPREAD:
            yield f"{change.name} comes from a mapping taken with **, which others may use too: give it in the call"
        elif given.origin is Origin.MAPPED and (given.keyword is None or change.act is not Act.RENAME):
            yield f"{change.name} is mapped, and is none of the cluster's: move the task by hand"
    conf = place.parameters.get("conf")
    if place.kind is Kind.SPARK_SQL and conf is not None and isinstance(conf.value, str):
        if not is_conf_text(conf.value):
            yield "conf is a text with a template: make it a mapping"
        elif conf.origin is not Origin.CALL:
            yield "conf is a text that does not stand in the call: make it a mapping"


def _is_given_somehow(place: Place, name: str) -> bool:
    """True if the parameter has a value, or may come from what only a run knows."""
    given = place.parameters.get(name)
    return place.has_unknown or (given is not None and says_something(given.value))


def _of_values(place: Place) -> Iterator[str]:
    """What the values say against a move."""
    if place.kind is Kind.PYSPARK and "conf" in place.default_names and place.is_given("config_kwargs"):
        yield "conf of default_args and config_kwargs are two names for the same there: give one of them"
    name = place.application
    application = place.value(name)
    if place.kind in {Kind.SPARK_SUBMIT, Kind.LIVY} and place.calls and not _is_given_somehow(place, name):
        yield f"{name}: the call names none"
    yield from _of_jars(place, application)
    yield from _of_patterns(place)
    if isinstance(application, str) and application.endswith((".R", ".r")):
        yield f"{name}: applications in R do not run on the cluster"


def _how_to_drop(place: Place) -> Iterator[str]:
    """What to do with keys that the rewrite would take out of a conf that stands in the call."""
    keys = dict.fromkeys(key for conf in confs_of(place) for key in conf if key in PLACES_OF_DRIVERS)
    given = place.parameters.get(NAME_OF_CONF.get(place.kind, "conf"))
    if keys and given is not None:
        value = None if given.keyword is None else given.keyword.value
        where = value.id if isinstance(value, ast.Name) else "its mapping"
        told = "write conf out in the call, where --write takes them out, or delete them from"
        yield f"{', '.join(keys)}: {told} {where}"


def _of_patterns(place: Place) -> Iterator[str]:
    """spark-submit finds the files that a pattern fits; a job names each of its files."""
    for name in _FILES:
        for path in paths_of(place.value(name)):
            if not path.startswith(("http://", "https://")) and not is_templated(path) and _PATTERN.search(path):
                yield f"{name}: {path} is a pattern, and none is taken: name each file, or give an archive of them"


def _of_jars(place: Place, application: Any) -> Iterator[str]:
    """What an application in a jar cannot have, and a script neither."""
    main = "class_name" if place.kind is Kind.LIVY else "java_class"
    if not place.is_jar:
        return
    if says_something(place.value("py_files")):
        yield "py_files: an application in a jar reads no Python files: take them out"
    if end_of(application).endswith(".py"):
        yield f"{main}: {application} is a script, and has no main class: take it out"

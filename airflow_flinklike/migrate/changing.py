"""How the parameters of a task change when it moves, and what of them stays without effect."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator

from airflow_flinklike.migrate.confs import NAME_OF_CONF, dropped_keys, is_conf_text, is_shielded, of_conf_text
from airflow_flinklike.migrate.model import Act, Change, Kind, Origin, Place, says_something
from airflow_flinklike.migrate.parameters import (
    CONNECTIONS,
    DROPPED,
    HOLDING,
    RENAMED,
    SHIELDED,
    TOLERATED,
)
from runtime.common.spark_conf import OWNED

DEFAULT_CONN_ID = "flinklike_default"
_SHARED = {Origin.SPREAD: "a mapping taken with **", Origin.DEFAULT_ARGS: "default_args"}


def changes_of(place: Place, conn_id: str) -> Iterator[Change]:
    kind, given = place.kind, place.parameters
    for name in given:
        if given[name].origin is Origin.SPREAD and name in TOLERATED[kind]:
            pass  # others may take the mapping too
        elif name in RENAMED[kind]:
            yield Change(Act.RENAME, name, RENAMED[kind][name])
        elif given[name].origin is Origin.DEFAULT_ARGS:
            pass  # an operator takes from default_args what it knows
        elif name in DROPPED[kind]:
            yield Change(Act.DROP, name, why=DROPPED[kind][name])
        elif name in HOLDING[kind] and not says_something(given[name].value) and name not in place.default_names:
            yield Change(Act.DROP, name)  # where default_args give it, an empty value here takes it back
    yield from _of_connection(place, conn_id)
    yield from _of_shielded(place)
    for key in dropped_keys(place):
        yield Change(Act.DROP_KEY, NAME_OF_CONF.get(kind, "conf"), key, OWNED[key])
    if kind is Kind.LIVY:
        yield from _of_polling(place)
    conf = given.get("conf")
    if kind is Kind.SPARK_SQL and conf is not None and is_conf_text(conf.value):
        yield Change(Act.SET, "conf", json.dumps(of_conf_text(conf.value)))


def _of_shielded(place: Place) -> Iterator[Change]:
    """What `default_args` give, and the task has not had until now, is taken back."""
    why = f"default_args give it, {place.kind} has never taken it, and it would start a Spark environment"
    for name in sorted(SHIELDED[place.kind] & place.parameters.keys()):
        if is_shielded(place, name) and says_something(place.parameters[name].value):
            yield Change(Act.SET, name, "None", why)


def _of_connection(place: Place, conn_id: str) -> Iterator[Change]:
    """`conn_id` is set where another one would be in force: one of the old kind, or the default one."""
    name = CONNECTIONS[place.kind]
    given = place.parameters.get(name)
    has_defaults = "conn_id" in place.default_names or place.has_open_defaults
    if given is not None and given.origin is Origin.SPREAD:
        if name != "conn_id":
            yield Change(Act.DROP, name)
        yield Change(Act.SET, "conn_id", json.dumps(conn_id))
    elif given is not None and given.origin is not Origin.DEFAULT_ARGS:
        if conn_id == DEFAULT_CONN_ID and not has_defaults:
            yield Change(Act.DROP, name)
        elif name == "conn_id" and given.origin is Origin.CALL:
            yield Change(Act.SET, "conn_id", json.dumps(conn_id))
        else:
            yield Change(Act.DROP, name)
            yield Change(Act.SET, "conn_id", json.dumps(conn_id))
    elif conn_id != DEFAULT_CONN_ID or has_defaults or place.open_spreads:
        yield Change(Act.SET, "conn_id", json.dumps(conn_id))


def _of_polling(place: Place) -> Iterator[Change]:
    """LivyOperator waits for the end only with a `polling_interval`, or when it defers."""
    given = place.parameters.get("polling_interval")
    deferrable = place.parameters.get("deferrable")
    if given is not None and given.origin is not Origin.DEFAULT_ARGS:
        yield Change(Act.DROP, "polling_interval", why="leave it out: the end is seen at once")
    waits = given is not None and isinstance(given.value, int | float) and given.value > 0
    if not waits and not (deferrable is not None and deferrable.value is True):
        why = "LivyOperator does not wait for the end without a polling_interval, and neither will this task"
        yield Change(Act.SET, "wait_for_completion", "False", why)


def notes_of_changes(changes: Iterable[Change]) -> Iterator[str]:
    """What the rewrite changes, in words."""
    return (_in_words(change) for change in changes if change.why)


def without_effect(place: Place, gone: Collection[str]) -> Iterator[str]:
    """What has no effect for the task once it has moved, and stays, since it stands where others take it too.

    `gone`: names that the rewrite takes out of `default_args`.
    """
    for name, why in DROPPED[place.kind].items():
        given = place.parameters.get(name)
        is_gone = given is not None and given.origin is Origin.DEFAULT_ARGS and name in gone
        if given is not None and given.origin in _SHARED and says_something(given.value) and not is_gone:
            instead = why.removeprefix("leave it out: ")
            yield f"{name} of {_SHARED[given.origin]} has no effect for tasks that move ({instead}): take it out there"


def _in_words(change: Change) -> str:
    if change.act is Act.DROP_KEY:
        return f"{change.text} is taken out of {change.name}: {change.why}"
    what = f"{change.name} is taken out" if change.act is Act.DROP else f"{change.name}={change.text}"
    return f"{what}: {change.why.removeprefix('leave it out: ')}"

"""What becomes of a task: a table-driven function from its parameters to a verdict."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from airflow_flinklike.api.artifacts import is_elsewhere
from airflow_flinklike.api.spark_start import CONF_OF
from airflow_flinklike.migrate.model import Act, Change, Computed, Judgement, Kind, Origin, Place, Verdict, known_end
from airflow_flinklike.migrate.parameters import (
    CONNECTIONS,
    DROPPED,
    HOLDING,
    KEPT,
    NEW,
    OF_AIRFLOW,
    PLACES_OF_DRIVERS,
    RENAMED,
    TOLERATED,
    says_something,
)
from airflow_flinklike.migrate.values import has_computed
from runtime.common.spark_conf import OWNED, WARM_CONF, conf_text, is_static, is_without_effect, static_conf
from runtime.common.spark_environments import JARS, SparkOffer, SparkWish, refused_static_conf

DEFAULT_CONN_ID = "flinklike_default"
_LOCAL = {"spark.master": "local[*]", **WARM_CONF}
_OFFER = SparkOffer(_LOCAL, environment_bytes=1 << 60)
_OWN_JOB = "the job's own"
_VARIANTS_MAX = 100
_SHARED = {Origin.SPREAD: "a mapping taken with **", Origin.DEFAULT_ARGS: "default_args"}
_FILES = ("application", "file", "py_files", "files", "archives")
_CONF_OF = {Kind.PYSPARK: "config_kwargs"}
_STARTS = {**CONF_OF, "jars": JARS}
_COUNTED = frozenset({"conf", "config_kwargs", *_STARTS})
"""Parameters by which the instances of a mapped task can differ in their environment."""


def judge(place: Place, conn_id: str = DEFAULT_CONN_ID) -> Judgement:
    """What becomes of the tasks of a place, whose connection to the cluster is to be `conn_id`. Never raises."""
    changes = [*_changes(place, conn_id)]
    reasons = [*place.obstacles, *_holding(place), *_unreachable(place, changes), *_of_values(place)]
    conf = [*_confs(place)]
    for one in conf:
        reasons += [reason for reason in refused_static_conf(_literal(one), [_OFFER]) if reason not in reasons]
    if reasons:
        return Judgement(Verdict.STAYS, tuple(dict.fromkeys(reasons)), tuple(place.notes))
    notes = [*place.notes, *_notes(place), *notes_of_changes(place, changes)]
    if _is_jar(place):
        return Judgement(Verdict.JAR, (), tuple(notes), tuple(changes))
    keys = tuple(dict.fromkeys(_key_of(one, place.script_conf or {}) for one in conf))
    if keys in {("",), ()}:
        return Judgement(Verdict.MOVES, (), tuple(notes), tuple(changes))
    confs = (place.script_conf or {}, *conf)
    static = {key: conf_text(value) for one in confs for key, value in _effective(one).items()}
    return Judgement(Verdict.ENVIRONMENT, (), tuple(notes), tuple(changes), keys, static)


def _dropped_keys(place: Place) -> list[str]:
    """Keys that the rewrite takes out of a conf that stands in the call as a literal mapping."""
    given = place.parameters.get(_CONF_OF.get(place.kind, "conf"))
    if given is None or given.origin is not Origin.CALL or given.keyword is None:
        return []
    literal = given.keyword.value
    keys = [key.value for key in literal.keys if isinstance(key, ast.Constant)] if isinstance(literal, ast.Dict) else []
    return [key for key in keys if isinstance(key, str) and key in PLACES_OF_DRIVERS and keys.count(key) == 1]


def _in_words(change: Change) -> str:
    if change.act is Act.DROP_KEY:
        return f"{change.text} is taken out of {change.name}: {change.why}"
    what = f"{change.name} is taken out" if change.act is Act.DROP else f"{change.name}={change.text}"
    return f"{what}: {change.why.removeprefix('leave it out: ')}"


def is_own(key: str | None) -> bool:
    """True for the key of an environment that each job has for itself."""
    return key == _OWN_JOB


def _changes(place: Place, conn_id: str) -> Iterator[Change]:
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
    for key in _dropped_keys(place):
        yield Change(Act.DROP_KEY, _CONF_OF.get(kind, "conf"), key, OWNED[key])
    if kind is Kind.LIVY:
        yield from _of_polling(place)
    conf = given.get("conf")
    if kind is Kind.SPARK_SQL and conf is not None and _is_conf_text(conf.value):
        yield Change(Act.SET, "conf", json.dumps(_of_conf_text(conf.value)))


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
        if not _is_conf_text(conf.value):
            yield "conf is a text with a template: make it a mapping"
        elif conf.origin is not Origin.CALL:
            yield "conf is a text that does not stand in the call: make it a mapping"


def _is_given_somehow(place: Place, name: str) -> bool:
    """True if the parameter has a value, or may come from what only a run knows."""
    given = place.parameters.get(name)
    return place.has_unknown or (given is not None and says_something(given.value))


def _is_given(place: Place, name: str) -> bool:
    return name in place.parameters and place.parameters[name].origin is not Origin.DEFAULT_ARGS


def _of_values(place: Place) -> Iterator[str]:
    """What the values say against a move."""
    if place.kind is Kind.PYSPARK and "conf" in place.default_names and _is_given(place, "config_kwargs"):
        yield "conf of default_args and config_kwargs are two names for the same there: give one of them"
    name = "file" if place.kind is Kind.LIVY else "application"
    application = _value(place, name)
    if place.kind in {Kind.SPARK_SUBMIT, Kind.LIVY} and place.calls and not _is_given_somehow(place, name):
        yield f"{name}: the call names none"
    yield from _of_jars(place, application)
    if isinstance(application, str) and application.endswith((".R", ".r")):
        yield f"{name}: applications in R do not run on the cluster"


def _of_jars(place: Place, application: Any) -> Iterator[str]:
    """What an application in a jar cannot have, and a script neither."""
    main = "class_name" if place.kind is Kind.LIVY else "java_class"
    if not _is_jar(place):
        return
    if says_something(_value(place, "py_files")):
        yield "py_files: an application in a jar reads no Python files: take them out"
    if known_end(application).endswith(".py"):
        yield f"{main}: {application} is a script, and has no main class: take it out"


def _notes(place: Place) -> Iterator[str]:
    new = sorted(NEW[place.kind] & place.default_names - {name for name in place.parameters if _is_given(place, name)})
    if new:
        yield f"{', '.join(new)}: default_args give it, and it counts for this task from now on"
    yield from _of_urls(place)
    if place.kind is Kind.LIVY:
        yield "its XCom is the job's value, or its id where it does not wait, and no batch id"
    if place.kind is Kind.SPARK_SQL:
        yield "spark-sql reads the Hive metastore by itself: name it in conf, or in the cluster's configuration"
    conf = _value(place, _CONF_OF.get(place.kind, "conf"))
    if isinstance(conf, Computed) or (isinstance(conf, str) and conf and not _is_conf_text(conf)):
        yield "conf is known when it runs: with static keys the task gets a Spark environment"
    elif any(isinstance(key, Computed) for one in _confs(place) for key in one):
        yield "a part of conf is known when it runs: with static keys the task gets a Spark environment"
    if place.script_problem and not _is_jar(place):
        yield place.script_problem
    application = _value(place, "file" if place.kind is Kind.LIVY else "application")
    if isinstance(application, Computed) and not application.end.endswith((".py", ".jar")):
        yield "the application is known when it runs: a jar needs java_class"
    if _value(place, "properties_file"):
        yield "properties_file: static keys in it give the task a Spark environment"
    without = [key for one in _confs(place) for key in one if isinstance(key, str) and is_without_effect(key, _LOCAL)]
    if without:
        names = ", ".join(dict.fromkeys(without))
        yield f"{names}: without effect where Spark's tasks run in the TaskManager's JVM"


def notes_of_changes(place: Place, changes: Iterable[Change]) -> Iterator[str]:
    """What the rewrite changes, and what it leaves without effect."""
    yield from _of_kept(place)
    yield from (_in_words(change) for change in changes if change.why)


def _of_kept(place: Place) -> Iterator[str]:
    """What has no effect, and stays where the rewrite changes nothing."""
    for name, why in DROPPED[place.kind].items():
        given = place.parameters.get(name)
        if given is not None and given.origin in _SHARED and says_something(given.value):
            instead = why.removeprefix("leave it out: ")
            yield f"{name} of {_SHARED[given.origin]} has no effect, and can be taken out there: {instead}"


def _value(place: Place, name: str) -> Any:
    given = place.parameters.get(name)
    return None if given is None or given.origin is Origin.MAPPED else given.value


def _is_jar(place: Place) -> bool:
    name, main = ("file", "class_name") if place.kind is Kind.LIVY else ("application", "java_class")
    application = place.parameters.get(name)
    given = [] if application is None else [application.value]
    if application is not None and application.origin is Origin.MAPPED and isinstance(application.value, list):
        given = application.value
    is_jar_file = any(known_end(one).endswith(".jar") for one in given)
    return is_jar_file or (main in place.parameters and says_something(place.parameters[main].value))


def _of_urls(place: Place) -> Iterator[str]:
    """Where the files are read that a URL names: one note for each kind."""
    given = [place.parameters[name].value for name in _FILES if name in place.parameters]
    paths = [path for value in given for path in _paths(value) if is_elsewhere(path)]
    if found := [path for path in paths if path.startswith("local:")]:
        yield f"{found[0]} is a file of each TaskManager's host"
    if found := [path for path in paths if not path.startswith("local:")]:
        yield f"{found[0]} is fetched where the task runs, with the credentials of the TaskManagers or of the job"


def _paths(value: Any) -> list[str]:
    several = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return [one.strip() for one in several if isinstance(one, str)]


def _confs(place: Place) -> Iterator[dict[Any, Any]]:
    """The Spark conf of each instance that may differ: one, or several of a mapped task."""
    mapped = {
        name: given.value if isinstance(given.value, list) else [Computed(name)]
        for name, given in place.parameters.items()
        if given.origin is Origin.MAPPED and name in _COUNTED
    }
    fixed = {name: one.value for name, one in place.parameters.items() if one.origin is not Origin.MAPPED}
    dropped = _dropped_keys(place)
    variants = itertools.islice(itertools.product(*mapped.values()), _VARIANTS_MAX)
    for variant in variants:
        conf = _conf_of(place.kind, {**fixed, **dict(zip(mapped, variant, strict=True))})
        yield {key: value for key, value in conf.items() if key not in dropped}


def _conf_of(kind: Kind, values: Mapping[str, Any]) -> dict[Any, Any]:
    conf = values.get(_CONF_OF.get(kind, "conf"), values.get("conf"))
    if isinstance(conf, str) and _is_conf_text(conf):
        conf = _of_conf_text(conf)
    found = dict(conf) if isinstance(conf, dict) else {}
    if kind in {Kind.SPARK_SUBMIT, Kind.LIVY}:
        found |= {key: values[name] for name, key in _STARTS.items() if says_something(values.get(name))}
    return {key: value for key, value in found.items() if value is not None}


def _literal(conf: Mapping[Any, Any]) -> dict[str, str]:
    return {
        key: conf_text(value)
        for key, value in conf.items()
        if isinstance(key, str) and not has_computed(value) and not is_templated(value)
    }


def _effective(conf: Mapping[Any, Any]) -> dict[str, Any]:
    """The static part that has an effect where Spark's tasks run in the driver's JVM."""
    return {
        key: value
        for key, value in conf.items()
        if isinstance(key, str) and is_static(key) and not is_without_effect(key, _LOCAL)
    }


def _key_of(conf: Mapping[Any, Any], script: Mapping[str, str]) -> str | None:
    """The environment's key; "" for the warm one, None if a value of static conf is known only when the task runs."""
    if any(has_computed(value) or is_templated(value) for value in _effective(conf).values()):
        return None
    asked = static_conf(_literal(conf))
    script = {key: value for key, value in script.items() if key not in asked}
    key = _OFFER.environment(SparkWish(asked=asked, script=script)).key
    return _OWN_JOB if key != _OFFER.environment(SparkWish("a job", asked, script)).key else key


def is_templated(value: Any) -> bool:
    """True for a text with a template of Airflow's in it."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def _is_conf_text(value: Any) -> bool:
    """True for conf as SparkSqlOperator takes it: `key=value,key=value`."""
    return (
        isinstance(value, str)
        and not is_templated(value)
        and bool(value)
        and all("=" in one for one in value.split(","))
    )


def _of_conf_text(value: str) -> dict[str, str]:
    pairs = (one.partition("=") for one in value.split(","))
    return {key.strip(): text.strip() for key, _, text in pairs}

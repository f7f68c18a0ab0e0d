"""Static Spark conf that a script sets itself, found in its text: the JVM that it needs is known before it runs.

Found are literal values: `SparkSession.builder.config("key", "value")`, with `map={...}`, `enableHiveSupport()`, and
`SparkConf().set("key", "value")` and `.setAll([...])`. What a script computes is known only when it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from airflow_flinklike.api.reached_calls import reached_calls
from runtime.common.spark_conf import conf_text, static_conf
from runtime.common.spark_environments import CATALOG, HIVE

_AT_LAUNCH = ("spark.driver.", "spark.jars")
"""Under spark-submit these have no effect in a script: there its options count, and here they win."""

_SETTERS = ("enableHiveSupport", "config", "set")


class Setting(NamedTuple):
    """A value that a line of a script sets. `is_certain`: the line runs whenever the script does."""

    value: str
    line: int
    is_certain: bool


def builder_conf(source: str, given: Mapping[str, str]) -> dict[str, str]:
    """The static conf of a script's text, beyond what its job has been `given`. Empty for a text that is no Python."""
    return {key: setting.value for key, setting in builder_settings(source, given).items()}


def builder_settings(source: str, given: Mapping[str, str]) -> dict[str, Setting]:
    """The same with the lines.

    What the job has been `given` wins over a line in a branch that may not run, over conf that has no effect in a
    script under spark-submit, and over Hive support, which costs a JVM of the job's own. Functions that nothing calls
    and branches that never run set nothing.
    """
    if not any(word in source for word in _SETTERS):
        return {}
    try:
        found: dict[str, Setting] = {}
        for call, is_certain in reached_calls(ast.parse(source)):
            for key, value in _settings(call):
                if is_certain or not (key in found and found[key].is_certain):
                    found[key] = Setting(value, call.end_lineno or call.lineno, is_certain)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}  # Python says it where the script runs
    static = static_conf({key: setting.value for key, setting in found.items()})
    return {key: setting for key, setting in found.items() if key in static and not _is_overruled(key, setting, given)}


def _is_overruled(key: str, setting: Setting, given: Mapping[str, str]) -> bool:
    if key not in given:
        return False
    return not setting.is_certain or key == CATALOG or key.startswith(_AT_LAUNCH) or given[key] == setting.value


def _settings(call: ast.Call) -> Iterator[tuple[str, str]]:
    function = call.func
    match function:
        case ast.Attribute(attr="enableHiveSupport"):
            yield CATALOG, HIVE
        case ast.Attribute(attr="set", value=ast.Attribute(attr="conf")):
            return  # conf of the session, which a warm session takes
        case ast.Attribute(attr="config" | "set"):
            named = {keyword.arg: keyword.value for keyword in call.keywords}
            pair = [*call.args, *(named[name] for name in ("key", "value")[len(call.args) :] if name in named)]
            yield from _literals([(pair[0], pair[1])] if len(pair) == 2 else [])
            for keyword in call.keywords:
                if keyword.arg == "map" and isinstance(keyword.value, ast.Dict):
                    yield from _literals(zip(keyword.value.keys, keyword.value.values, strict=True))
        case ast.Attribute(attr="setAll") if call.args and isinstance(call.args[0], ast.List | ast.Tuple):
            pairs = [pair.elts for pair in call.args[0].elts if isinstance(pair, ast.Tuple | ast.List)]
            yield from _literals((pair[0], pair[1]) for pair in pairs if len(pair) == 2)


def _literals(pairs: Iterable[tuple[ast.expr | None, ast.expr]]) -> Iterator[tuple[str, str]]:
    for pair in pairs:
        match pair:
            case ast.Constant(value=str(key)), ast.Constant(value=str() | int() | float() as value):
                yield key, conf_text(value)
            case _:
                pass  # it is known only when the script runs

"""Static Spark conf that a script sets itself, found in its text: the JVM that it needs is known before it runs.

Found are literal values: `SparkSession.builder.config("key", "value")`, with `map={...}`, `enableHiveSupport()`, and
`SparkConf().set("key", "value")` and `.setAll([...])`. What a script computes is known only when it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from runtime.common.spark_conf import conf_text, static_conf

_AT_LAUNCH = ("spark.driver.", "spark.jars")
"""Under spark-submit these have no effect in a script: there its options count, and here they win."""


def builder_conf(source: str, given: Mapping[str, str]) -> dict[str, str]:
    """The static conf of a script's text, beyond what its job has been `given`. Empty for a text that is no Python."""
    try:
        tree = ast.parse(source)
        found = dict(pair for call in _calls(tree) for pair in _settings(call))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}  # Python says it where the script runs
    return {
        key: value
        for key, value in static_conf(found).items()
        if given.get(key) != value and not (key in given and key.startswith(_AT_LAUNCH))
    }


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """In the order in which Python makes them: of a chain the first one first."""
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)
    if isinstance(node, ast.Call):
        yield node


def _settings(call: ast.Call) -> Iterator[tuple[str, str]]:
    function = call.func
    match function:
        case ast.Attribute(attr="enableHiveSupport"):
            yield "spark.sql.catalogImplementation", "hive"
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

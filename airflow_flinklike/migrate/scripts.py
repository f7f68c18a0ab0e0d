"""The script of a task: where it lies, and the static conf that its own code sets."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from airflow_flinklike.api.artifacts import is_elsewhere
from airflow_flinklike.api.builder_conf import builder_conf
from airflow_flinklike.migrate.confs import is_templated
from airflow_flinklike.migrate.files import UnreadableFileError, read
from airflow_flinklike.migrate.model import Computed, Origin, Parameter, Place
from airflow_flinklike.migrate.paths import PathEvaluator
from airflow_flinklike.migrate.tree import Tree

_SO = "static conf of its builder gives the task a Spark environment"


class Script(NamedTuple):
    """What is known of a script: its static conf, None where it was not read, and why it was not."""

    conf: Mapping[str, str] | None
    problem: str = ""


_NO_SCRIPT = Script({})


def find_script(place: Place, file: Path, tree: Tree | None = None) -> Script:
    """The script of a place of a DAG file. With the file's `tree`, paths that begin at the file are found too."""
    given = place.parameters.get(place.application)
    if given is None or given.origin is Origin.MAPPED:
        return _NO_SCRIPT
    value = given.value if tree is None else _located(given, file, tree)
    if isinstance(value, Computed):
        return _of_computed(value)
    if not isinstance(value, str) or not value.endswith(".py"):
        return _NO_SCRIPT
    if is_templated(value):
        return Script(None, f"depends on its script, whose path is known when it runs ({value}): {_SO}")
    return _of_path(value, file)


def _located(given: Parameter, file: Path, tree: Tree) -> Any:
    """The value, with the place of the DAG file where it counts."""
    if not isinstance(given.value, Computed) or given.keyword is None or given.origin is not Origin.CALL:
        return given.value
    node: ast.expr = given.keyword.value
    value = PathEvaluator(tree.changed, file).value(node, tree.scope(node))
    return value if isinstance(value, str) else given.value


def _of_computed(value: Computed) -> Script:
    if value.end.endswith(".jar"):
        return _NO_SCRIPT
    return Script(None, f"depends on its script, whose path is known when it runs ({value}): {_SO}")


def _of_path(value: str, file: Path) -> Script:
    """A relative path counts from the directory of the worker, which is not here: the DAG file's is tried."""
    path = file.absolute().parent / value.removeprefix("file://")
    if is_elsewhere(value) or not path.is_file():
        return Script(None, f"depends on its script, which was not found: {value}; {_SO}")
    try:
        return Script(builder_conf(read(path).text, {}))
    except UnreadableFileError as error:
        return Script(None, f"depends on its script {path}: {error}")

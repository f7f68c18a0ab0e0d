"""From what stands on the command line to a built job: `module:pipeline`, a script, or a JobGraph as JSON."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.program import JobProgram, Program
from airflow_flinklike.script import script_job
from runtime.jobgraph.graph import JobGraph


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """spark-submit's own options, as they were given."""

    args: Sequence[str]
    py_files: str
    files: str
    archives: str
    conf: Sequence[str]
    name: str


def parse_params(texts: Sequence[str]) -> dict[str, Any]:
    """`k=v` texts; a value that is JSON is taken as such, anything else as text."""
    params: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            message = f"--param {text!r}: expected k=v"
            raise PipelineError(message)
        try:
            params[key] = json.loads(value)
        except ValueError:
            params[key] = value
    return params


def load_job(target: str, options: ScriptOptions, *, params: Mapping[str, Any], parallelism: int | None) -> JobProgram:
    """Build the job. Raises PipelineError that says what is wrong with the target."""
    path = Path(target)
    if path.suffix == ".json":
        return JobProgram(_read_graph(path, params))
    if path.suffix == ".py" or path.is_file():
        return _script(target, options, params)
    if ":" in target:
        return _build(_import_target(target), target, params, parallelism)
    message = f"{target!r}: expected module:pipeline, a script (.py), or a JobGraph (.json)"
    raise PipelineError(message)


def _read_graph(path: Path, params: Mapping[str, Any]) -> JobGraph:
    try:
        graph = JobGraph.parse(path.read_bytes())
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise PipelineError(message) from error
    return graph.model_copy(update={"params": {**graph.params, **params}}).without_caches() if params else graph


def _script(target: str, options: ScriptOptions, params: Mapping[str, Any]) -> JobProgram:
    conf = {}
    for text in options.conf:
        key, separator, value = text.partition("=")
        if not separator:
            message = f"--conf {text!r}: expected key=value"
            raise PipelineError(message)
        conf[key] = value
    job = script_job(
        target,
        args=options.args,
        name=options.name or None,
        conf=conf,
        py_files=options.py_files.split(",") if options.py_files else (),
        files=options.files.split(",") if options.files else (),
        archives=options.archives.split(",") if options.archives else (),
        params=params,
    )
    return job.build()


def _import_target(target: str) -> Any:
    module_name, _, attribute = target.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        message = f"{target!r}: no module named {error.name!r} here; run it from the directory that has it"
        raise PipelineError(message) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            message = f"{target!r}: {module_name} has no {attribute!r}"
            raise PipelineError(message)
        found = getattr(found, part)
    return found


def _build(found: Any, target: str, params: Mapping[str, Any], parallelism: int | None) -> JobProgram:
    rest = dict(params)
    if callable(found) and not isinstance(found, Program):
        found = _call(found, target, rest, parallelism)
    elif parallelism is not None:
        message = f"-p: {target!r} is built already; make it a function with a parameter `parallelism`"
        raise PipelineError(message)
    if isinstance(found, JobGraph):
        return JobProgram(found)
    if not isinstance(found, Program):
        message = f"{target!r} is a {type(found).__name__}: expected a Pipeline, a script_job or a JobGraph"
        raise PipelineError(message)
    return found.build(rest or None)


def _call(function: Any, target: str, params: Mapping[str, Any], parallelism: int | None) -> Any:
    """Call a factory with the params that it takes by name; what it does not take stays for ctx.params."""
    accepted = inspect.signature(function).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in accepted.values())
    arguments = {key: value for key, value in params.items() if takes_all or key in accepted}
    if parallelism is not None:
        if "parallelism" not in accepted and not takes_all:
            message = f"-p: {target!r} has no parameter `parallelism`"
            raise PipelineError(message)
        arguments["parallelism"] = parallelism
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        message = f"{target!r}: {error}; give it with --param name=value"
        raise PipelineError(message) from error
    return function(**arguments)

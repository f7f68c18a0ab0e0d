"""Targets of `flinklike run`: module:pipeline, file.py:pipeline, a script, or a JobGraph. Each becomes a built job."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pydantic

from airflow_flinklike.api.application import application_job
from airflow_flinklike.api.artifacts import is_elsewhere
from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.api.job_source import build_job, import_reference, importable
from airflow_flinklike.api.program import Program
from airflow_flinklike.api.resource_texts import resource_spec_of_texts
from airflow_flinklike.api.start_options import configured_job, restore_settings, restored_job
from airflow_flinklike.exceptions import FlinklikeClientError, PipelineError
from runtime.common.errors import FlinklikeError, InvalidInputError
from runtime.common.labels import label_problems, sorted_labels
from runtime.config.job_configuration import job_configuration_problems
from runtime.jobgraph.graph import JobGraph, ResourceSpec
from runtime.jobgraph.parsing import parse_job_graph
from runtime.jobgraph.restart_strategy import restart_strategy_of, restart_strategy_problems, user_failures_of

logger = logging.getLogger(__name__)

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_PYDANTIC = str(Path(pydantic.__file__).parent) + os.sep
_NO_SCRIPTS: Mapping[str, str] = {
    ".sql": "run its statements from one, with spark.sql()",
    ".scala": "compile it into a jar",
    ".java": "compile it into a jar",
    ".r": "SparkR is not run here",
}


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """Options of spark-submit, as given. A list is in one text, with commas, or in several."""

    main_class: str = ""
    name: str = ""
    args: Sequence[str] = ()
    py_files: Sequence[str] = ()
    files: Sequence[str] = ()
    archives: Sequence[str] = ()
    jars: Sequence[str] = ()
    conf: Sequence[str] = ()
    secrets: Sequence[str] = ()
    resources: Sequence[str] = ()
    is_streaming: bool = field(default=False, kw_only=True)
    checkpoint_name: str = field(default="", kw_only=True)

    def given(self) -> list[str]:
        """The names of the options that were given."""
        options = {
            "arguments after the target": self.args,
            "--py-files": self.py_files,
            "--files": self.files,
            "--archives": self.archives,
            "--conf (or option that stands for it)": self.conf,
            "--name": self.name,
            "--secret": self.secrets,
            "--resources": self.resources,
            "--jars": self.jars,
            "--class": self.main_class,
            "--streaming": self.is_streaming,
            "--checkpoint-name": self.checkpoint_name,
        }
        return [option for option, value in options.items() if value]


def is_script(target: str) -> bool:
    """True for a file that runs as an application, with arguments behind it."""
    path = Path(target)
    if is_elsewhere(target):
        return True
    return path.suffix in {".py", ".jar"} or (path.suffix != ".json" and path.is_file())


def parse_params(texts: Sequence[str]) -> dict[str, Any]:
    """The params of `k=v` texts. A value is parsed as JSON, else it is a text."""
    params: dict[str, Any] = {}
    for text in texts:
        key, value = _key_and_value("--param", text)
        try:
            params[key] = json.loads(value)
        except ValueError:
            params[key] = value
    return params


def load_job(target: str, options: ScriptOptions, *, params: Mapping[str, Any], parallelism: int | None) -> JobProgram:
    """Build the job. Raises PipelineError for a wrong target, and for options that it does not take."""
    if instead := _NO_SCRIPTS.get(Path(target).suffix.lower()):
        message = f"{target!r} is neither a Python script nor a jar: {instead}"
        raise PipelineError(message)
    if is_script(target):
        _refuse_parallelism(parallelism, "a script sets its own, for instance with --conf spark.sql.shuffle.partitions")
        if params:
            message = f"{target!r} is a script, which takes no --param: give it arguments, behind its name"
            raise PipelineError(message)
        return _script(target, options)
    if given := options.given():
        message = f"{target!r} is not a script, so it takes no {', '.join(given)}"
        raise PipelineError(message)
    if Path(target).suffix == ".json":
        _refuse_parallelism(parallelism, f"{target!r} is built already")
        return build_job(_read_graph(Path(target)), params)
    if ":" in target:
        return _pipeline(target, params, parallelism)
    message = f"{target!r}: expected module:pipeline, file.py:pipeline, a script (.py), or a JobGraph (.json)"
    raise PipelineError(message)


def with_restarts(program: JobProgram, strategy_text: str, user_failures_text: str) -> JobProgram:
    """The job with another restart strategy and another rule for user failures; "" keeps its own.

    Raises PipelineError.
    """
    changes: dict[str, Any] = {}
    try:
        if strategy_text:
            changes["restart_strategy"] = restart_strategy_of(strategy_text)
        if user_failures_text:
            changes["user_failures"] = user_failures_of(user_failures_text)
    except InvalidInputError as error:
        raise PipelineError(str(error), error.problems) from error
    strategy = changes.get("restart_strategy")
    if strategy is not None and (problems := tuple(restart_strategy_problems(strategy))):
        raise PipelineError("; ".join(problems), problems)
    return replace(program, graph=program.graph.model_copy(update=changes)) if changes else program


def with_labels(program: JobProgram, labels: Sequence[str] | None) -> JobProgram:
    """The job with all its tasks on TaskManagers that have these labels too. Raises PipelineError."""
    if not labels:
        return program
    vertices = []
    for vertex in program.graph.vertices:
        wanted = sorted_labels([*vertex.resources.labels, *labels])
        if problems := tuple(f"--label: {problem}" for problem in label_problems(wanted)):
            raise PipelineError("; ".join(problems), problems)
        spec = vertex.resources.model_copy(update={"labels": wanted})
        vertices.append(vertex.model_copy(update={"resources": spec}))
    return replace(program, graph=program.graph.model_copy(update={"vertices": tuple(vertices)}))


def with_savepoint(
    program: JobProgram,
    path: str,
    claim_mode_text: str,
    state_partitions: Sequence[str] | None,
    *,
    allow_non_restored_state: bool,
) -> JobProgram:
    """The job, started from a savepoint. A path of this host is made absolute. "" starts it from nothing.

    Raises PipelineError, also for options that have no effect without a savepoint.
    """
    if not path:
        if allow_non_restored_state or claim_mode_text or state_partitions:
            message = (
                "--allow-non-restored-state, --claim-mode and --state-partitions are of a savepoint: give one with "
                "--from-savepoint"
            )
            raise PipelineError(message)
        return program
    try:
        settings = restore_settings(
            path,
            claim_mode_text,
            allow_non_restored_state=allow_non_restored_state,
            state_partitions=state_partitions or (),
        )
    except PipelineError as error:
        options = {"claim mode": "--claim-mode", "state partitions": "--state-partitions"}
        option = next((option for word, option in options.items() if str(error).startswith(word)), "--from-savepoint")
        message = f"{option}: {error}"
        raise PipelineError(message) from error
    return restored_job(program, settings)


def with_configuration(program: JobProgram, given: Sequence[str]) -> JobProgram:
    """The job with options of the cluster for itself, `key=value`, over those that it has. Raises PipelineError."""
    changes = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            message = f"-D {text!r}: expected key=value"
            raise PipelineError(message)
        changes[key.strip()] = value.strip()
    if problems := tuple(job_configuration_problems(changes)):
        raise PipelineError("; ".join(problems), problems)
    return configured_job(program, changes)


def _read_graph(path: Path) -> JobGraph:
    try:
        return parse_job_graph(path.read_bytes())
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise PipelineError(message) from error


def _tell_of_pythons() -> None:
    """Under spark-submit the shell chooses the interpreter; `python` and `python3` choose none in particular."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if os.environ.get(name, "python") not in {"", "python", "python3"}:
            logger.info(
                "%s=%s of this shell has no effect: a script runs on the interpreter of the TaskManagers",
                name,
                os.environ[name],
            )


def _script(target: str, options: ScriptOptions) -> JobProgram:
    _tell_of_pythons()
    job = application_job(
        target,
        main_class=options.main_class,
        jars=",".join(options.jars),
        args=options.args,
        name=options.name or None,
        conf=dict(_key_and_value("--conf", text) for text in options.conf),
        py_files=",".join(options.py_files),
        files=",".join(options.files),
        archives=",".join(options.archives),
        secrets=options.secrets,
        resources=_resources(options.resources),
        streaming=options.is_streaming,
        checkpoint_name=options.checkpoint_name,
    )
    return job.build()


def _resources(texts: Sequence[str]) -> ResourceSpec:
    try:
        return resource_spec_of_texts(texts)
    except PipelineError as error:
        message = f"--resources: {error}"
        raise PipelineError(message) from error


def _pipeline(target: str, params: Mapping[str, Any], parallelism: int | None) -> JobProgram:
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, str(Path.cwd()))
    try:
        with importable(target):
            found = import_reference(target)
            return build_job(_with_parallelism(found, target, parallelism), params, label=target)
    except (FlinklikeClientError, FlinklikeError):
        raise
    except Exception as error:
        message = f"{target!r}: {_where(error)}{type(error).__name__}: {error}"
        raise PipelineError(message) from error


def _with_parallelism(found: Any, target: str, parallelism: int | None) -> Any:
    """A function gets `-p` as its argument `parallelism`. Raises PipelineError for any other target."""
    if parallelism is None:
        return found
    if not callable(found) or isinstance(found, Program):
        _refuse_parallelism(parallelism, f"{target!r} is built already; make it a function that takes `parallelism`")
    parameters = inspect.signature(found).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    if "parallelism" not in parameters and not takes_all:
        _refuse_parallelism(parallelism, f"{target!r} takes no argument `parallelism`")
    return functools.partial(found, parallelism=parallelism)


def _refuse_parallelism(parallelism: int | None, reason: str) -> None:
    if parallelism is not None:
        message = f"-p: {reason}"
        raise PipelineError(message)


def _key_and_value(option: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        message = f"{option} {text!r}: expected key=value"
        raise PipelineError(message)
    return key, value


def _where(error: Exception) -> str:
    """The line of user code that failed, also where a call into this package did; "" when unknown."""
    if isinstance(error, SyntaxError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(("<", _PACKAGE, _PYDANTIC))]
    return f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""

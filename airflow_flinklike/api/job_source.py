"""Sources of jobs: a reference such as 'module:name', a function that returns a job, or the job itself."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.api.program import Program
from airflow_flinklike.exceptions import PipelineError, SourceMissingError
from runtime.jobgraph.graph import JobGraph

logger = logging.getLogger(__name__)

_FILE_SUFFIX = ".py"

PipelineSource = str | Program | JobGraph | Callable[..., Program | JobGraph]


def build_job(
    source: PipelineSource,
    params: Mapping[str, Any] | None = None,
    *,
    label: str | None = None,
    warn: Callable[[str], None] = logger.warning,
) -> JobProgram:
    """Build the job of a source. `params` fill parameters of these names of a function, and all become `ctx.params`.

    Errors name the source by `label`; `warn` is told of params that may be a slip of the pen. Raises PipelineError.
    """
    given = dict(params or {})
    label = label or (source if isinstance(source, str) else _label(source))
    with importable(source):
        found: Any = import_reference(source) if isinstance(source, str) else source
        if callable(found) and not isinstance(found, Program):
            found = found(**_arguments(found, label, given, warn))
        if isinstance(found, JobGraph):
            params = {**found.params, **given}
            return JobProgram(found.model_copy(update={"params": params}).without_caches() if given else found)
        if not isinstance(found, Program):
            kind = type(found).__name__
            message = f"{label!r} gave a value of type {kind}: expected a Pipeline, a script_job or a JobGraph"
            raise PipelineError(message)
        return found.build(given or None)


@contextmanager
def importable(source: PipelineSource) -> Iterator[None]:
    """Within the block, modules beside the file of 'path/file.py:name' can be imported, as when the file is run."""
    file = source.rpartition(":")[0] if isinstance(source, str) else ""
    if not file.endswith(_FILE_SUFFIX):
        yield
        return
    folder = str(Path(file).resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def import_reference(reference: str) -> Any:
    """The object of 'package.module:name' or 'path/file.py:name'.

    Raises PipelineError that names the missing part.
    """
    module_name, separator, attributes = reference.rpartition(":")
    if not separator or not module_name or not attributes:
        message = f"{reference!r} is not a reference: expected 'package.module:name' or 'path/file.py:name'"
        raise PipelineError(message)
    try:
        found: Any = _import(reference, module_name)
    except ModuleNotFoundError as error:
        message = f"{reference!r}: no module named {error.name!r} can be imported here"
        raise SourceMissingError(message) from error
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            message = f"{reference!r}: {module_name} has no {attributes!r}"
            raise PipelineError(message)
        found = getattr(found, attribute)
    return found


def _import(reference: str, module_name: str) -> ModuleType:
    if not module_name.endswith(_FILE_SUFFIX):
        if "/" in module_name:
            message = f"{reference!r}: {module_name!r} is no module; a file is written 'path/file.py:name'"
            raise PipelineError(message)
        return importlib.import_module(module_name)
    path = Path(module_name).resolve()
    if not path.is_file():
        message = f"{reference!r}: there is no file {path}"
        raise SourceMissingError(message)
    return _import_file(path)


def _import_file(path: Path) -> ModuleType:
    """Import the file as a module of its name, or of another name where another module has that.

    The module stays in `sys.modules`, where pickling finds it and sends its objects by value.
    """
    name = path.stem
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) != str(path):
        name = f"{name}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _arguments(
    function: Callable[..., Any], label: str, params: Mapping[str, Any], warn: Callable[[str], None]
) -> dict[str, Any]:
    """The params that the function has parameters for; all of them when it takes `**kwargs`.

    A param that such a function has no parameter for may be a slip of the pen: it is told.
    """
    signature = inspect.signature(function)
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())
    arguments = {key: value for key, value in params.items() if takes_all or key in signature.parameters}
    try:
        signature.bind(**arguments)
    except TypeError as error:
        message = f"{label}{signature}: {error}; give it in params (--param on the command line)"
        raise PipelineError(message) from error
    if signature.parameters and (others := sorted({*params} - {*arguments})):
        warn(f"{label}{signature} has no parameter {', '.join(others)}: only ctx.params shows it")
    return arguments


def _label(source: object) -> str:
    return str(getattr(source, "__qualname__", type(source).__name__))

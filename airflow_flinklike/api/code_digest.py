"""The digest of what a job computes: the same for builds of the same code, by whatever process, from whatever place.

Pickles of the same function differ from build to build: by the path and the lines of its file, the order of sets, and
what else is loaded. So the digest is of what the functions are made of: instructions, constants, and what they refer to
in the user's own modules. Values that a run fills in (params, arguments, environment) are no part of it.
"""

from __future__ import annotations

import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import cloudpickle

from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.api.pickling import is_own_module
from runtime.jobgraph.graph import Artifact, BlobCode, JarCode, Operator, PickledCode, ScriptCode

DIGEST_LENGTH = 16
_PARTS_MAX = 200_000
_OF_RUN = {"params", "environment", "savepoint", "client_version"}
_FILES = ("py_files", "files", "archives", "wheels", "jars")
_ATOMS = (str, bytes, int, float, complex, bool, type(None), type(...), range)
_LEFT_OUT = frozenset({"__dict__", "__weakref__", "__firstlineno__", "__static_attributes__", "__module__"})


def code_digest(program: JobProgram) -> str:
    """The first hexadecimal digits of it."""
    graph = program.graph
    parts = _Parts()
    parts.take({key: value for key, value in graph.document().items() if key not in {*_OF_RUN, *_FILES, "vertices"}})
    for field in _FILES:
        parts.take([_of_artifact(one) for one in getattr(graph, field)])
    for vertex in graph.vertices:
        parts.take(vertex.model_dump(mode="json", exclude={"operators"}))
        for operator in vertex.operators:
            parts.take(operator.model_dump(mode="json", exclude={"code"}))
            parts.take(_code_of(operator, program))
    return parts.hexdigest()[:DIGEST_LENGTH]


def _of_artifact(artifact: Artifact) -> tuple[str, str]:
    return artifact.name, artifact.sha256


def _code_of(operator: Operator, program: JobProgram) -> Any:
    match operator.code:
        case PickledCode() as code:
            return _loaded(code.payload())
        case BlobCode(blob=blob):
            return _loaded(b"".join(program.uploads[blob.sha256].chunks()))
        case ScriptCode(script=script, builder_conf=conf):
            return _of_artifact(script), conf
        case JarCode(jar=jar, main_class=main_class):
            return _of_artifact(jar), main_class
        case code:
            return code.model_dump(mode="json")


def _loaded(data: bytes) -> Any:
    """The function. One that this process cannot load counts by its error, since its bytes differ in each build."""
    try:
        return cloudpickle.loads(data)
    except Exception as error:  # noqa: BLE001 - objects of user code raise what they like
        return f"cannot be loaded: {type(error).__name__}"


class _Parts:
    """A walk over objects. One that was met before counts as its number."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._met: dict[int, tuple[int, object]] = {}

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def take(self, value: object) -> None:
        stack = [value]
        while stack:
            one = stack.pop()
            if type(one) in _ATOMS:
                self._add(f"{type(one).__name__} {one!r}")
            elif id(one) in self._met:
                self._add(f"met {self._met[id(one)][0]}")
            elif len(self._met) < _PARTS_MAX:
                self._met[id(one)] = (len(self._met), one)
                parts = list(_parts_of(one))
                self._add(f"{type(one).__name__} of {len(parts)}")
                stack.extend(reversed(parts))

    def _add(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self._digest.update(len(data).to_bytes(8, "big") + data)


def _parts_of(value: Any) -> Iterator[Any]:
    match value:
        case list() | tuple():
            yield from value
        case Mapping():
            for key, one in value.items():
                yield key
                yield one
        case set() | frozenset():
            yield from sorted(map(_digest_of, value))
        case types.CodeType():
            yield from (value.co_name, value.co_code, value.co_names, value.co_varnames, value.co_freevars)
            yield from (value.co_argcount, value.co_kwonlyargcount, value.co_flags, value.co_consts)
        case types.FunctionType():
            yield from _parts_of_function(value)
        case types.MethodType():
            yield from (value.__self__, value.__func__)
        case types.ModuleType():
            yield from _parts_of_module(value)
        case type():
            yield from _parts_of_class(value)
        case _:
            yield from _parts_of_object(value)


def _digest_of(value: object) -> str:
    parts = _Parts()
    parts.take(value)
    return parts.hexdigest()


def _parts_of_module(module: types.ModuleType) -> Iterator[Any]:
    """One of the user's own is pickled with all that it holds."""
    yield module.__name__.rpartition(".")[2]
    if module.__name__ in sys.modules and not is_own_module(module.__name__):
        yield module.__name__
        return
    for name in sorted(one for one in vars(module) if not one.startswith("__")):
        yield from (name, vars(module)[name])


def _is_of_others(value: Any) -> bool:
    """True for what the TaskManager imports: it is the same there whatever its code is here."""
    name = value.__module__ or ""
    return name in sys.modules and name != "__main__" and not is_own_module(name)


def _parts_of_function(function: types.FunctionType) -> Iterator[Any]:
    if _is_of_others(function):
        yield f"{function.__module__}.{function.__qualname__}"
        return
    code = function.__code__
    yield code
    yield from (function.__defaults__, function.__kwdefaults__)
    for cell in function.__closure__ or ():
        yield _content_of(cell)
    for name in sorted(set(_global_names(code))):
        if name in function.__globals__:
            yield from (name, function.__globals__[name])


def _content_of(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "an empty cell"


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _global_names(one)


def _parts_of_class(found: type) -> Iterator[Any]:
    yield found.__qualname__
    if _is_of_others(found):
        yield found.__module__
        return
    yield found.__bases__
    for name in sorted(vars(found).keys() - _LEFT_OUT):
        if not isinstance(vars(found)[name], types.GetSetDescriptorType | types.MemberDescriptorType):
            yield from (name, vars(found)[name])


def _parts_of_object(value: Any) -> Iterator[Any]:
    if isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset, value.fdel)
    elif isinstance(value, types.BuiltinFunctionType):
        yield value.__qualname__
    else:
        yield type(value)
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as error:  # noqa: BLE001 - reduce functions of arbitrary objects raise what they like
            yield type(error).__name__  # of its kind it is one, whatever its state
            return
        if isinstance(reduced, str):
            yield reduced
            return
        for part in reduced:
            yield list(part) if isinstance(part, Iterator) else part

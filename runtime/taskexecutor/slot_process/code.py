"""Loading user code: references, pickled functions, code blobs. Errors say what is missing, and where."""

from __future__ import annotations

import hashlib
import importlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.jobgraph.graph import (
    PYTHON_VERSION,
    BlobCode,
    FunctionReference,
    Operator,
    PickledCode,
)
from runtime.taskexecutor.slot_process.causes import UnusableCodeError
from runtime.taskexecutor.slot_process.own_failures import import_hint

UserFunction = Callable[..., Any]


class CodeLoader:
    """Loads the functions of operators; keeps what it has loaded, so that globals survive in a reused process."""

    def __init__(self, task_manager_id: str) -> None:
        self._task_manager_id = task_manager_id
        self._loaded: dict[str, UserFunction] = {}

    def load(self, operator: Operator, code_files: dict[str, str]) -> UserFunction:
        """The function of an operator. Raises UnusableCodeError."""
        code = operator.code
        try:
            match code:
                case FunctionReference():
                    return self._callable(_resolve(code.target), operator.name)
                case PickledCode():
                    return self._unpickle(operator.name, code.python, code.sha256, code.payload)
                case BlobCode():
                    return self._unpickle(
                        operator.name, code.python, code.blob.sha256, lambda: _blob_bytes(code, code_files)
                    )
                case _:
                    message = f"operator {operator.name!r} is a script and has no function"
                    raise UnusableCodeError(message)
        except ImportError as error:
            hint = import_hint(error, self._task_manager_id)
            message = f"the code of {operator.name!r} cannot be loaded: {error}\n{hint}".rstrip("\n")
            raise UnusableCodeError(message) from error

    def _unpickle(self, operator: str, python: str, sha256: str, payload: Callable[[], bytes]) -> UserFunction:
        if python != PYTHON_VERSION:
            message = f"the code of {operator!r} was pickled by Python {python}, this TaskManager runs {PYTHON_VERSION}"
            raise UnusableCodeError(message)
        if (known := self._loaded.get(sha256)) is not None:
            return known
        data = payload()
        if hashlib.sha256(data).hexdigest() != sha256:
            message = f"the code of {operator!r} is damaged: its sha256 is not {sha256}"
            raise UnusableCodeError(message)
        try:
            function = pickle.loads(data)
        except ImportError:
            raise
        except Exception as error:  # anything can happen while user objects are built
            message = f"the pickled code of {operator!r} cannot be loaded: {type(error).__name__}: {error}"
            raise UnusableCodeError(message) from error
        return self._loaded.setdefault(sha256, self._callable(function, operator))

    def _callable(self, function: Any, operator: str) -> UserFunction:
        if not callable(function):
            message = f"the code of {operator!r} is a {type(function).__name__}, not a function"
            raise UnusableCodeError(message)
        return function  # type: ignore[no-any-return]  # callable() does not narrow Any


def _resolve(target: str) -> Any:
    module_name, _, attributes = target.partition(":")
    if not module_name or not attributes:
        message = f"{target!r} is not a code reference: expected package.module:function"
        raise UnusableCodeError(message)
    found: Any = importlib.import_module(module_name)
    for name in attributes.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            where = getattr(sys.modules[module_name], "__file__", None) or "a built-in module"
            message = f"module {module_name!r} ({where}) has no {attributes!r}"
            raise UnusableCodeError(message) from error
    return found


def _blob_bytes(code: BlobCode, code_files: dict[str, str]) -> bytes:
    if code.blob.inline is not None:
        return code.blob.inline_bytes()
    path = code_files.get(code.blob.sha256)
    if path is None:
        message = f"code blob {code.blob.key} was not brought to this TaskManager"
        raise UnusableCodeError(message)
    return Path(path).read_bytes()

"""Callables as bytes, by cloudpickle, which pickles the user's own modules by value.

A module is the user's own when it lies outside of the standard library, site-packages and OUR_PACKAGES. The TaskManager
cannot import it: a DAG file is `unusual_prefix_...`, and by default cloudpickle sends a helper module beside it by
reference. The registration with cloudpickle lasts for one dump.
"""

from __future__ import annotations

import itertools
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from airflow_flinklike.api.blame import find_blame
from airflow_flinklike.exceptions import UnpicklableError

OUR_PACKAGES = frozenset({"airflow_flinklike", "runtime", "jobmaster_process"})
PICKLE_PROTOCOL = 5

_lock = threading.RLock()


def pickle_callable(name: str, function: Callable[..., Any]) -> bytes:
    """The callable as bytes. Raises UnpicklableError that names the operator and the object that prevents it."""
    with _lock, _by_value(list(own_modules)):
        try:
            return _dump(function)
        except Exception as error:
            blame = find_blame(function, _dump)
            message = f"operator {name!r} cannot be sent to the cluster: {blame or error}"
            raise UnpicklableError(message) from error


class OwnModules:
    """The user's own modules among the loaded ones.

    An iteration examines only modules that were loaded since the iteration before. In a forked process, such as a task
    of Airflow, touching each of some thousand modules would copy the memory in which they lie.
    """

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._last = ""
        self._count = 0

    def __iter__(self) -> Iterator[ModuleType]:
        for name in reversed(self._newer()):
            if _is_own(name, sys.modules.get(name)):
                self._names[name] = None
        for name in list(self._names):
            module = sys.modules.get(name)
            if module is not None and _is_own(name, module):
                yield module

    def _newer(self) -> list[str]:
        """Names since the last iteration, the newest first; all names when the last known module was unloaded."""
        count = len(sys.modules)
        newest = list(itertools.islice(reversed(sys.modules), max(0, count - self._count) + 1))
        known = newest.index(self._last) if self._last in newest else -1
        newer = newest[:known] if known >= 0 else list(reversed(sys.modules))
        self._last, self._count = newest[0], count
        return newer


own_modules = OwnModules()
"""Those of this process. A process that forks others iterates once before."""


def is_own_module(name: str) -> bool:
    """True for a loaded module that is the user's own, so that functions of it are pickled by value."""
    return _is_own(name, sys.modules.get(name))


def _is_own(name: str, module: object) -> bool:
    if name.partition(".")[0] in OUR_PACKAGES or name == "__main__" or not isinstance(module, ModuleType):
        return False
    file = module.__dict__.get("__file__")
    return isinstance(file, str) and not _is_installed(file)


def _dump(value: object) -> bytes:
    data: bytes = cloudpickle.dumps(value, protocol=PICKLE_PROTOCOL)
    return data


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    already = cloudpickle.list_registry_pickle_by_value()
    added = []
    try:
        for module in modules:
            if module.__name__ not in already and sys.modules.get(module.__name__) is module:
                cloudpickle.register_pickle_by_value(module)
                added.append(module)
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


@cache
def _installed_prefixes() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {*site.getsitepackages(), site.getusersitepackages()}
    found = {str(Path(path)) for path in paths if path} | {str(Path(path).resolve()) for path in paths if path}
    return tuple(f"{path}/" for path in sorted(found))


@cache
def _is_installed(file: str) -> bool:
    return file.startswith((*_installed_prefixes(), "<"))

"""Callables as bytes: always cloudpickle, with every module of the user's own by value.

A module is the user's own when it lies outside the standard library and site-packages and is not ours: the TaskManager
cannot import it (a DAG file is `unusual_prefix_...`, and the helper module beside it would go by reference). The
registration lasts for the dump only.
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
    """The callable as bytes. Raises UnpicklableError that names operator and the object to blame."""
    with _lock, _by_value(list(own_modules)):
        try:
            return _dump(function)
        except Exception as error:
            blame = find_blame(function, _dump)
            message = f"operator {name!r} cannot be sent to the cluster: {blame or error}"
            raise UnpicklableError(message) from error


class OwnModules:
    """The loaded modules that lie outside the standard library and site-packages and are not ours.

    Only what was loaded since the last look is looked at: to touch each of some thousand modules costs a process that
    was forked, as Airflow's tasks are, a copy of the memory in which they lie.
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
        """Names from the newest on; all of them where it is not known what came last, as some were unloaded."""
        count = len(sys.modules)
        newest = list(itertools.islice(reversed(sys.modules), max(0, count - self._count) + 1))
        known = newest.index(self._last) if self._last in newest else -1
        newer = newest[:known] if known >= 0 else list(reversed(sys.modules))
        self._last, self._count = newest[0], count
        return newer


own_modules = OwnModules()
"""Of this process. Whoever forks others looks once before."""


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

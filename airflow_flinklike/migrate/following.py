"""What the files that are read import from each other: subclasses of operators, and functions that make tasks."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from airflow_flinklike.migrate.imports import ImportTable
from airflow_flinklike.migrate.model import Kind

Module = tuple[str, ...]
"""The parts of a module's name, from the root directory on; files import only its end."""


class Classes:
    """Subclasses of the operators, by the file that defines each."""

    def __init__(self) -> None:
        self._kinds: dict[Module, Kind] = {}

    def add(self, file: Path, classes: Mapping[str, Kind]) -> set[str]:
        """Take the classes of one file. The result are the names that are new."""
        module = _module(file)
        new = {name for name in classes if (*module, name) not in self._kinds}
        self._kinds |= {(*module, name): kind for name, kind in classes.items()}
        return new

    def kind_of(self, full: str, file: Path) -> Kind | None:
        """The kind of a class by its full name as `file` imports it, such as `sub.base.Ours` or `.base.Ours`."""
        return next((kind for path, kind in self._kinds.items() if _is_named(path, full, file)), None)


class Importers:
    """Who imports functions and classes that make tasks. Each text that could is parsed once."""

    def __init__(self, makers: Iterable[tuple[Path, str]], texts: Iterable[tuple[Path, str]]) -> None:
        words = {word for file, name in makers for word in (name, _module(file)[-1])}
        self._by_word: dict[str, list[tuple[str, Path]]] = {}
        for path, text in texts if words else ():
            for full in _imported(text) if any(word in text for word in words) else ():
                self._by_word.setdefault(full.rpartition(".")[2], []).append((full, path))

    def number(self, file: Path, name: str) -> int:
        """The other files that import the name from `file`, or the module with it."""
        module = _module(file)
        found = {
            path
            for target in (module, (*module, name))
            for full, path in self._by_word.get(target[-1], ())
            if path != file and _is_named(target, full, path)
        }
        return len(found)


def _imported(text: str) -> list[str]:
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return [one.full.removesuffix(".*") for one in ImportTable(ast.parse(text)).imports]
    return []


def _is_named(path: Module, full: str, file: Path) -> bool:
    """True if `full`, in an import of `file`, is the name of what lies at `path`."""
    wanted = full.lstrip(".").split(".") if full.strip(".") else []
    level = len(full) - len(full.lstrip("."))
    if not level:
        return len(path) > len(wanted) and path[-len(wanted) :] == tuple(wanted)
    package = file.resolve().parent.parts
    return path == (*package[: len(package) - level + 1], *wanted)


def _module(file: Path) -> Module:
    path = file.resolve()
    return path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts

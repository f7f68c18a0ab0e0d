"""The import graph of the checkout: which file uses which, over imports and over names of programs.

A Python file uses the modules that it imports, and the modules and scripts that a string in it names (`-m` of a
process, a file of `bin/`). A script uses the modules and scripts that its text names. A test uses the `conftest.py` of
its folders, and the modules that `docs/rule-proofs.md` names with it below a rule: it proves what they keep.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PACKAGES = ("runtime", "jobmaster_process", "airflow_flinklike", "tests", "dags")
NAMED = ("bin", "conf", "docs", "requirements")
"""Folders with files that are no Python, and that a string or a script names."""
PROOFS = "docs/rule-proofs.md"

_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
_FILE = re.compile(r"[\w./-]+")
_LINK = re.compile(r"\]\(\.\./([^)#]+)")
_RULE = re.compile(r"^## R\d+$", re.MULTILINE)


class ImportGraph:
    """Files are named by their path below the root, with `/`."""

    def __init__(self, uses: Mapping[str, Iterable[str]]) -> None:
        self._used_by: dict[str, set[str]] = defaultdict(set)
        self.files = frozenset(uses)
        for user, used in uses.items():
            for one in used:
                self._used_by[one].add(user)

    @classmethod
    def of(cls, root: Path) -> ImportGraph:
        """Read every source below `root`."""
        files = _Files(root)
        uses: dict[str, set[str]] = {path: set(files.uses(path)) for path in files.paths}
        for test, modules in proofs(root, files.paths):
            uses[test] |= modules
        return cls(uses)

    def distances(self, changed: Iterable[str], limit: int) -> dict[str, int]:
        """Every file from which a changed one is at most `limit` uses away, with that number; changed ones have 0."""
        found = dict.fromkeys(changed, 0)
        queue = deque(found)
        while queue:
            path = queue.popleft()
            if found[path] < limit:
                for user in sorted(self._used_by[path] - found.keys()):
                    found[user] = found[path] + 1
                    queue.append(user)
        return found


class _Files:
    """The files of the checkout, and what each uses."""

    def __init__(self, root: Path) -> None:
        self._root = root
        python = [path for folder in PACKAGES for path in (root / folder).rglob("*.py")]
        others = [path for folder in NAMED for path in (root / folder).rglob("*") if path.is_file()]
        self.paths = {
            path.relative_to(root).as_posix() for path in (*python, *others) if "__pycache__" not in path.parts
        }
        self._modules = {
            path.removesuffix(".py").replace("/", "."): path for path in self.paths if path.endswith(".py")
        }
        self._scripts = {path.rpartition("/")[2]: path for path in self.paths if path.startswith("bin/")}

    def uses(self, path: str) -> Iterator[str]:
        if path.endswith(".py"):
            tree = ast.parse((self._root / path).read_text(encoding="utf-8"))
            said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
            for node in ast.walk(tree):
                if node not in said:
                    yield from self._of_node(node, path)
            yield from self._conftests(path)
        elif path.startswith("bin/"):
            yield from self._named((self._root / path).read_text(encoding="utf-8"))

    def _of_node(self, node: ast.AST, path: str) -> Iterator[str]:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield from self._module(f"{node.module}.{alias.name}") or self._module(node.module)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from self._module(alias.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
            for one in self._named(node.value):
                # A message of the product names pages; only a test reads them.
                if one != path and (one.startswith("bin/") or one.endswith(".py") or path.startswith("tests/")):
                    yield one

    def _module(self, name: str) -> tuple[str, ...]:
        """The file of a module or of a package; a package that is a program has two."""
        names = (name, f"{name}.__init__", f"{name}.__main__")
        return tuple(self._modules[one] for one in names if one in self._modules)

    def _named(self, text: str) -> Iterator[str]:
        """Modules that are named in full, and files: by their path, those of `bin/` by their name as well."""
        for word in _DOTTED.findall(text):
            if "." in word or f"{word}.__main__" in self._modules:
                yield from self._module(word)
        for word in _FILE.findall(text):
            if word in self.paths:
                yield word
            elif word in self._scripts:
                yield self._scripts[word]

    def _conftests(self, path: str) -> Iterator[str]:
        if path.rpartition("/")[2].startswith("test_"):
            parts = path.split("/")[:-1]
            for length in range(2, len(parts) + 1):  # the one of all tests would make every test depend on its imports
                if (file := "/".join((*parts[:length], "conftest.py"))) in self.paths:
                    yield file


def proofs(root: Path, paths: Iterable[str]) -> Iterator[tuple[str, set[str]]]:
    """Each test that proves a rule, with the modules that keep the rule."""
    known = set(paths)
    page = root / PROOFS
    for rule in _RULE.split(page.read_text(encoding="utf-8"))[1:] if page.exists() else ():
        linked = [path for path in _LINK.findall(rule) if path in known and path.endswith(".py")]
        tests = {path for path in linked if path.startswith("tests/")}
        for test in sorted(tests):
            yield test, set(linked) - tests

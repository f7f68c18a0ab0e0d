"""No circle of files: imports of type checkers and imports inside of functions count as well."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("runtime", "airflow_flinklike", "jobmaster_process")

Graph = Mapping[str, set[str]]


def modules() -> dict[str, Path]:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "generated" not in path.parts]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """`from package import name` is an import of the module `package.name` where that is one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in known else node.module


def import_graph() -> Graph:
    known = modules()
    return {name: {one for one in imported(path, known) if one in known} for name, path in known.items()}


def circles(graph: Graph) -> set[frozenset[str]]:
    """Each set of modules in which every module imports, directly or not, every other one and itself."""
    left = pruned(graph)
    reached = {name: reachable(left, name) for name in left}
    return {frozenset(other for other in reached[name] if name in reached[other]) for name in left} - {frozenset()}


def pruned(graph: Graph) -> Graph:
    """The modules on circles, and those on ways from one circle to another."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:
        imported_ones = set().union(*left.values())
        ends = {name for name, targets in left.items() if not targets or name not in imported_ones}
        if not ends:
            return left
        left = {name: targets - ends for name, targets in left.items() if name not in ends}


def reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"b", "e"}, "d": {"f"}, "e": set[str](), "f": {"f"}}
    assert circles(graph) == {frozenset("bc"), frozenset("f")}
    assert circles({"a": {"b"}, "b": set()}) == set()


def test_no_module_imports_itself_by_way_of_others() -> None:
    found = sorted(", ".join(sorted(circle)) for circle in circles(import_graph()))
    assert not found, "circles of files: " + "; ".join(found)

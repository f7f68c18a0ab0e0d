"""House rules as tests: sizes, banned calls, freshness of generated files, options that nobody reads."""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from runtime.common.fsm import TransitionTable
from runtime.config.catalog import AREAS
from runtime.config.docgen import REFERENCE, reference
from runtime.config.option import ConfigOption

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
FORBIDDEN_NAMES = {"utils.py", "helpers.py", "util.py", "helper.py", "misc.py"}


def sources(*folders: str) -> list[Path]:
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "generated" not in path.parts and "__pycache__" not in path.parts
    )


PRODUCT = sources("runtime", "airflow_flinklike", "jobmaster_process", "dags")
ALL = PRODUCT + sources("tests")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_file_is_longer_than_the_limit() -> None:
    too_long = {
        str(path.relative_to(ROOT)): n for path in ALL if (n := len(path.read_text().splitlines())) > FILE_LINES_MAX
    }
    assert not too_long


def test_no_function_is_longer_than_the_limit() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in ALL
        for node in functions(path)
        if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not too_long


def test_no_file_is_a_drawer_for_everything() -> None:
    assert not [path for path in ALL if path.name in FORBIDDEN_NAMES]


def test_no_two_test_modules_share_a_name() -> None:
    """Pytest would refuse to collect the second one, where their folders are no packages."""
    modules = [path for path in sources("tests") if path.name.startswith("test_")]
    names = Counter(path.name for path in modules if not (path.parent / "__init__.py").exists())
    assert not [name for name, count in names.items() if count > 1]


def test_no_test_of_these_folders_needs_a_jvm() -> None:
    """bin/test.sh does not look there for tests with Spark or Airflow (`with_jvm`)."""
    marker = re.compile(r"mark\.(spark|airflow)\b")
    found = [path for folder in ("unit", "tidy") for path in (ROOT / "tests" / folder).rglob("*.py")]
    assert found
    assert [path for path in found if marker.search(path.read_text(encoding="utf-8"))] == []


def test_no_task_is_detached_from_the_loop() -> None:
    allowed = {ROOT / "runtime/aio/scope.py", ROOT / "runtime/rpc/grpc_server.py"}  # that is gRPC's task of a call
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in PRODUCT
        if path not in allowed
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr == "create_task"
        if re.search(r"loop(\(\))?\Z", ast.unparse(node.value))
    ]
    assert not found


def test_every_module_says_what_it_owns() -> None:
    silent = [str(path.relative_to(ROOT)) for path in ALL if not ast.get_docstring(tree_of(path))]
    assert not silent


def test_configuration_reference_is_fresh() -> None:
    assert REFERENCE.read_text() == reference(), "run python -m runtime.config.docgen"


def test_every_option_is_read_somewhere() -> None:
    """By a process: a rule across options is not enough, and neither is an import."""
    rules = {ROOT / "runtime/config/validate.py", *(ROOT / "runtime/config/options").iterdir()}
    used = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for path in PRODUCT
        if path not in rules
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute | ast.Name)
    }
    options = {
        name: option.key for _, area in AREAS for name, option in vars(area).items() if isinstance(option, ConfigOption)
    }
    assert not {key for name, key in options.items() if name not in used}


def test_no_module_is_dead() -> None:
    """Each is imported by another one, or is a program that something starts by its name."""
    starters = [ROOT / "pyproject.toml", *(path for path in (ROOT / "bin").iterdir() if path.is_file())]
    named = {name for path in starters for name in re.findall(r"[\w.]+", path.read_text())}
    for path in PRODUCT:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom):
                named |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = re.findall(r"[\w.]+", node.value)
                named |= {*words, *(word.rpartition(".")[0] for word in words)}
    dead = {
        name
        for path in sources("runtime", "airflow_flinklike", "jobmaster_process")
        for name in [".".join(path.relative_to(ROOT).with_suffix("").parts)]
        if name not in named and path.name not in {"__init__.py", "__main__.py"}
    }
    assert dead == set()


@pytest.mark.parametrize("pattern", [r"\bTODO\b", r"\bFIXME\b", r"\bXXX\b", r"time\.sleep\("])
def test_nothing_is_left_for_later(pattern: str) -> None:
    allowed = {ROOT / "tests/tidy/test_tidy.py"}
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in PRODUCT
        if path not in allowed
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not found


def test_no_conflict_of_a_merge_is_left() -> None:
    marker = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    texts = [path for path in ROOT.iterdir() if path.suffix in {".md", ".toml"}]
    for folder in ("docs", "conf", "bin", "requirements", "runtime", "airflow_flinklike", "jobmaster_process", "tests"):
        texts += [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert not [str(path.relative_to(ROOT)) for path in texts if marker.search(path.read_text(errors="replace"))]


def test_layers_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_state_diagrams_are_fresh() -> None:
    """Every machine has one, and every one there is belongs to a machine."""
    page = (ROOT / "docs/architecture.md").read_text()
    shown = re.findall(r"^```mermaid\n(stateDiagram-v2\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert sorted(shown) == sorted(table.mermaid() for table in _transition_tables())


def _transition_tables() -> list[TransitionTable[Any]]:
    found: dict[int, TransitionTable[Any]] = {}
    for path in PRODUCT:
        if "= TransitionTable(" in path.read_text():
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            found |= {id(value): value for value in vars(module).values() if isinstance(value, TransitionTable)}
    return list(found.values())

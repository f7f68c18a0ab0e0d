"""Which tests a change needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.suite.changed import HEAVY_SECONDS, SECONDS_PER_TEST, changed_files, select

LIGHT = "from runtime.a import decide\n\n\ndef test_it() -> None: ...\n"
HEAVY = (
    "import pytest\nfrom runtime.a import decide\n\npytestmark = pytest.mark.process\n\n\ndef test_it() -> None: ...\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "runtime/a.py", "def decide() -> None: ...\n")
    write(tmp_path, "runtime/b.py", '"""Another one."""\n')
    write(tmp_path, "tests/unit/test_a.py", LIGHT)
    write(tmp_path, "tests/unit/test_b.py", "import runtime.b\n\n\ndef test_it() -> None: ...\n")
    write(tmp_path, "tests/process/test_a_process.py", HEAVY)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=root, check=True)


def commit(root: Path) -> None:
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "a step")


def test_what_differs_is_what_is_not_committed_and_what_is_new(root: Path) -> None:
    write(root, "runtime/a.py", "def decide() -> int: ...\n")
    write(root, "runtime/c.py", "")
    assert changed_files(root, "HEAD") == ["runtime/a.py", "runtime/c.py"]
    commit(root)
    assert changed_files(root, "HEAD") == []


def test_with_a_branch_it_is_what_was_done_since_its_fork(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "work")
    write(root, "runtime/a.py", "def decide() -> int: ...\n")
    commit(root)
    git(root, "checkout", "-q", "main")
    write(root, "runtime/b.py", "NEW = 1\n")
    commit(root)
    git(root, "checkout", "-q", "work")
    assert changed_files(root, "main") == ["runtime/a.py"]


def test_a_base_that_git_does_not_know_is_one_sentence(root: Path) -> None:
    with pytest.raises(SystemExit, match="git merge-base nowhere HEAD: "):
        changed_files(root, "nowhere")


def test_tests_of_a_change_are_selected_by_kind(root: Path) -> None:
    selection = select(root, ["runtime/a.py"])
    assert (selection.light, selection.heavy) == (["tests/unit/test_a.py"], ["tests/process/test_a_process.py"])
    assert select(root, ["runtime/b.py"]).light == ["tests/unit/test_b.py"]
    assert select(root, ["README.md"]).light == []


def test_the_nearest_come_first_and_the_budget_ends_the_list(root: Path) -> None:
    count = int(HEAVY_SECONDS / SECONDS_PER_TEST["tests/process"])
    for number in range(count + 1):
        write(root, f"tests/process/test_more_{number:02}.py", HEAVY)
    write(root, "runtime/above.py", "import runtime.a\n")
    write(root, "tests/process/test_0_above.py", HEAVY.replace("runtime.a", "runtime.above"))
    selection = select(root, ["runtime/a.py"])
    assert len(selection.heavy) == count
    assert selection.heavy[0] == "tests/process/test_a_process.py", "which shares a word"
    assert selection.left_out[0] == "tests/process/test_0_above.py", "which is farther"


def test_a_test_that_has_changed_is_run_whatever_it_costs(root: Path) -> None:
    path = "tests/process/test_long.py"
    write(root, path, HEAVY + "\n\ndef test_it() -> None: ...\n" * 100)
    assert select(root, [path]).heavy == [path]
    assert path not in select(root, ["runtime/a.py"]).heavy

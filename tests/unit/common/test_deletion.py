"""Deletion of directory trees of tasks, however deep they are and wherever their links lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.common.deletion import delete_tree
from tests.kit.strangers.deep_directories import deep_directories


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_what_is_deeper_than_python_calls_itself(tmp_path: Path) -> None:
    with deep_directories(tmp_path / "a") as make_deep:
        make_deep(tmp_path / "a")
        (tmp_path / "a" / "wide").mkdir()
        for number in range(50):
            make_deep(tmp_path / "a" / "wide" / str(number), 3)
        before = descriptors()
        assert delete_tree(tmp_path / "a") == ()
        assert not (tmp_path / "a").exists()
        assert descriptors() == before


def test_links_are_deleted_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    for place in (tree, tree / "inner"):
        (place / "to-directory").symlink_to(outside)
        (place / "to-file").symlink_to(outside / "kept")
        (place / "to-nothing").symlink_to(tmp_path / "nothing")
    assert delete_tree(tree) == ()
    assert not tree.exists()
    assert (outside / "kept").exists()


@pytest.mark.parametrize("taken", ["empty", "full", "file"])
def test_a_task_may_have_taken_the_names_that_deletion_uses(tmp_path: Path, taken: str) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b" / "c").mkdir(parents=True)
    for number in range(1, 4):
        name = tree / f".to-delete-{number}"
        if taken == "file":
            name.touch()
        else:
            (name / "inner" if taken == "full" else name).mkdir(parents=True)
    assert delete_tree(tree) == ()
    assert not tree.exists()


def test_what_is_not_there_is_deleted(tmp_path: Path) -> None:
    assert delete_tree(tmp_path / "nothing") == ()


def test_what_is_no_directory_is_told_and_left(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "directory")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        (error,) = delete_tree(tmp_path / name)
        assert isinstance(error, OSError)
        assert (tmp_path / name).exists()

"""R50: where a host has control groups of either version, and what is written into them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.common.errors import UnavailableError
from runtime.taskexecutor.containment import cgroups
from runtime.taskexecutor.containment.cgroups import SlotCgroups, SlotLimits

LIMITS = SlotLimits(memory_bytes=100 << 20, cpu_cores=1.5, processes=40)
V1 = "31 23 0:30 {root} {place} rw,relatime - cgroup cgroup rw,{controllers}"
V2 = "41 31 0:38 {root} {place} rw,relatime shared:9 - cgroup2 cgroup2 rw"


@pytest.mark.parametrize(
    ("controller", "version", "expected"),
    [
        ("memory", 1, {"memory.limit_in_bytes": str(125 << 20)}),
        ("memory", 2, {"memory.max": str(125 << 20)}),
        ("cpu", 1, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}),
        ("cpu", 2, {"cpu.max": "150000 100000"}),
        ("pids", 1, {"pids.max": "40"}),
        ("pids", 2, {"pids.max": "40"}),
    ],
)
def test_settings(controller: str, version: int, expected: dict[str, str]) -> None:
    assert LIMITS.settings(controller, version) == expected
    assert SlotLimits(0, 0.0, 0).settings(controller, version) == {}


def tree_of_version_2(directory: Path, controllers: str = "cpu memory pids") -> Path:
    (directory / "cgroup.controllers").write_text(controllers)
    return directory


def test_mounts_of_both_versions(tmp_path: Path) -> None:
    two = tree_of_version_2(tmp_path, "pids\n")
    lines = [
        V2.format(root="/", place=two),
        V1.format(root="/", place="/c/cpu", controllers="cpu,cpuacct"),
        V1.format(root="/box", place="/c/memory", controllers="memory"),
        V2.format(root="/", place=two / "none"),
        "25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw",
    ]
    assert [found for found in cgroups._mounted(lines) if found[0] != "rw"] == [
        ("cpu", "/", "/c/cpu", 1),
        ("cpuacct", "/", "/c/cpu", 1),
        ("memory", "/box", "/c/memory", 1),
        ("pids", "/", str(two), 2),
    ]


def test_a_place_with_a_blank_in_it(tmp_path: Path) -> None:
    (tmp_path / "with a blank").mkdir()
    two = tree_of_version_2(tmp_path / "with a blank", "pids\n")
    lines = [V2.format(root="/a\\040b", place=str(two).replace(" ", "\\040"))]
    assert list(cgroups._mounted(lines)) == [("pids", "/a b", str(two), 2)]


def test_where_this_process_is_in_each_tree(tmp_path: Path) -> None:
    two, one = tree_of_version_2(tmp_path), tmp_path / "one"
    for place in (two / "a" / "b", one / "inner"):
        place.mkdir(parents=True)
    mounts = [V2.format(root="/a", place=two / "a"), V1.format(root="/box", place=one, controllers="memory")]
    tree_of_version_2(two / "a")
    own = ["4:memory:/box/inner", "0::/a/b"]
    assert cgroups._trees_of(own, mounts) == {
        "memory": (one / "inner", 1),
        "cpu": (two / "a" / "b", 2),
        "pids": (two / "a" / "b", 2),
    }
    # A path that is not below what is mounted, as in a container whose tree is another one's.
    for elsewhere in ("/elsewhere", "/ab/b"):
        assert cgroups._trees_of([f"0::{elsewhere}"], mounts)["cpu"] == (two / "a", 2)
    assert cgroups._trees_of(["7:blkio:/"], mounts) == {}


def test_version_2_lends_memory_down_to_each_process(tmp_path: Path) -> None:
    """In files of a directory, as the kernel has them in a tree of version 2."""
    parent = tmp_path / "here"
    root = cgroups._root_below(parent)
    slots = [root / "0", root / "1"]
    for group in (parent, root, *slots):
        group.mkdir()
        for name in ("cgroup.subtree_control", "cpu.max", "pids.max"):
            (group / name).touch()
    made = Files()
    for controller in ("memory", "cpu", "pids"):
        made._add(parent, 2, controller, 2, LIMITS)
    assert all((group / "cgroup.subtree_control").read_text().startswith("+pids") for group in (parent, root))
    for slot, group in enumerate(slots):
        assert (group / "cgroup.subtree_control").read_text() == "+memory"
        assert (group / "cpu.max").read_text() == "150000 100000"
        assert (group / "pids.max").read_text() == "40"
        assert made.of(slot) == (str(group),)
        opened = made.open(slot)
        assert opened != made.open(slot)
        assert Path(opened[0]).parent == group
        assert (Path(opened[0]) / "memory.max").read_text() == str(125 << 20)
        assert not made.has_ended(opened)
        (Path(opened[0]) / "memory.events").write_text("low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\n")
        assert made.has_ended(opened)


def test_a_slot_whose_limits_could_not_be_scaled_gets_its_own_again(tmp_path: Path) -> None:
    parent = tmp_path / "here"
    slot = cgroups._root_below(parent) / "0"
    slot.mkdir(parents=True)
    for group in (parent, slot.parent, slot):
        for name in ("cgroup.subtree_control", "cpu.max", "pids.max"):
            (group / name).touch()
    made = Files()
    for controller in ("cpu", "pids"):
        made._add(parent, 2, controller, 1, LIMITS)
    (slot / "pids.max").unlink()
    (slot / "pids.max").mkdir()
    with pytest.raises(UnavailableError, match="cannot be changed"):
        made.scale(0, 2)
    (slot / "pids.max").rmdir()
    (slot / "pids.max").touch()
    made.scale(0, 1)
    assert [(slot / name).read_text() for name in ("cpu.max", "pids.max")] == ["150000 100000", "40"]


class Files(SlotCgroups):
    """Where the kernel would put the files of a new group."""

    def _make(self, group: Path, settings: dict[str, str]) -> None:  # type: ignore[override]
        group.mkdir()
        for name, value in settings.items():
            (group / name).write_text(value)

    def _try_memory(self, group: Path, version: int, settings: dict[str, str]) -> None:  # type: ignore[override]
        assert settings == LIMITS.settings("memory", version)
        (group / "cgroup.subtree_control").write_text("+memory")


def test_only_dead_ones_of_this_namespace_go(tmp_path: Path) -> None:
    own = cgroups._root_below(tmp_path)
    dead = own.with_name(f"{own.name.rpartition('-')[0]}-{2**22 + 1}")
    foreign = own.with_name(f"flinklike-slots-1-{2**22 + 1}")
    for group in (own, dead, foreign):
        group.mkdir()
    cgroups._remove_of_dead(tmp_path)
    assert set(tmp_path.iterdir()) == {own, foreign}
    assert own.name.endswith(f"-{os.getpid()}")

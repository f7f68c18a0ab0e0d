"""R43: however many files, mappings and processes a task makes, looking at them takes a time that is bounded."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.system.linux import proportional_bytes
from runtime.taskexecutor.containment import memory as memory_module
from runtime.taskexecutor.containment import shared_memory
from runtime.taskexecutor.containment.memory import measure_tree, sample_tree
from runtime.taskexecutor.containment.segments import SlotSegments
from runtime.taskexecutor.containment.shared_memory import MAPPINGS_BYTES_MAX, HeldFiles, bytes_beside, memory_devices
from tests.kit.host.leaderless import leaderless

TREE = (os.getpid(),)
PAGE = 4096
FILE = 8 * 1024 * 1024
MANY_MAPPINGS = f"""
import mmap, os, sys
file = os.memfd_create("held")
os.write(file, bytes({FILE}))
shared = mmap.mmap(file, {FILE})
assert not any(shared[::{PAGE}])
kept = [mmap.mmap(-1, {PAGE}, prot=mmap.PROT_READ | mmap.PROT_WRITE * (i % 2)) for i in range(int(sys.argv[1]))]
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


class Looks:
    """Counts what is looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._look = os.stat
        monkeypatch.setattr(os, "stat", self)

    def __call__(self, path: str, **how: Any) -> os.stat_result:
        self.count += 1
        return self._look(path, **how)


def see(held: HeldFiles, paths: list[Path]) -> None:
    """As if a task had them open, one after another."""
    for path in paths:
        with path.open("wb") as file:
            file.write(b"x")
            file.flush()
            held._note(f"/proc/self/fd/{file.fileno()}")


def test_files_that_were_seen_have_their_turns(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "LOOKS_MAX", 100)
    held = HeldFiles(memory_devices())
    paths = [memory / str(number) for number in range(1000)]
    see(held, paths)
    names = sum(len(str(path)) for path in paths)
    held.look(TREE)
    assert held.bytes_held == len(paths) * PAGE + names
    for path in paths[:500]:
        path.unlink()
    with monkeypatch.context() as patched:
        looks = Looks(patched)
        held.look(TREE)
    assert looks.count <= 300
    assert len(paths) // 2 * PAGE < held.bytes_held < len(paths) * PAGE + names
    for _ in range(10):
        held.look(TREE)
    assert held.bytes_held == sum(PAGE + len(str(path)) for path in paths[500:])


def test_an_exact_figure_has_no_file_that_is_gone(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "LOOKS_MAX", 10)
    held = HeldFiles(memory_devices())
    paths = [memory / str(number) for number in range(1000)]
    see(held, paths)
    for path in paths:
        path.unlink()
    sample = sample_tree(TREE[0], held, SlotSegments(), limit=1)
    assert sample.bytes_used > held.bytes_held > 900 * PAGE
    assert measure_tree((), held, limit=1 << 60).bytes_used == 0
    assert held.bytes_held == 0


def test_a_process_that_ends_maps_nothing(memory: Path) -> None:
    held = HeldFiles(memory_devices())
    see(held, [memory / "file"])
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        assert bytes_beside((pid,), held) == 0
    finally:
        os.waitpid(pid, 0)


def test_empty_files_are_not_remembered(memory: Path) -> None:
    """There may be any number of them, which count nothing."""
    held = HeldFiles(memory_devices())
    for number in range(100):
        with (memory / str(number)).open("wb") as file:
            held._note(f"/proc/self/fd/{file.fileno()}")
    assert not held._known
    assert not held._turns


def test_more_descriptors_than_fit_into_a_turn_are_all_seen(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "LOOKS_MAX", 10)
    held = HeldFiles(memory_devices())
    files = [(memory / str(number)).open("wb", buffering=0) for number in range(100)]
    try:
        for file in files:
            file.write(b"x")
        for _ in range(2 + len(list(Path("/proc/self/fd").iterdir())) // 10):
            held.look(TREE)
        assert all(held.size_of((os.fstat(file.fileno()).st_dev, os.fstat(file.fileno()).st_ino)) for file in files)
    finally:
        for file in files:
            file.close()


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("mappings", [10, 20_000])
def test_mappings_are_read_where_it_matters_and_up_to_a_bound(mappings: int) -> None:
    command = [sys.executable, "-c", MANY_MAPPINGS, str(mappings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"mapped\n"
        held = HeldFiles(memory_devices())
        tree = sample_tree(child.pid, held, SlotSegments(), limit=1).tree
        assert tree == (child.pid,)
        before = bytes_read()
        upper = measure_tree(tree, held, limit=1 << 40)
        assert bytes_read() - before < 64 * 1024
        assert not upper.is_exact
        assert upper.bytes_used > 2 * FILE
        before = bytes_read()
        exact = measure_tree(tree, held, limit=1)
        assert bytes_read() - before < MAPPINGS_BYTES_MAX + 64 * 1024
        assert exact.is_exact
        counted_twice = exact.bytes_used - proportional_bytes(child.pid)
        # What it shares with others, libraries, counts the less the more of them there are.
        assert counted_twice < FILE // 4 if mappings == 10 else counted_twice > FILE * 3 // 4
        child.kill()


def test_what_is_unmapped_while_it_is_measured_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that ends meanwhile is not above its limit."""
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.write(bytes(4 * FILE))
        file.flush()
        shared = mmap.mmap(file.fileno(), 4 * FILE)
        assert not any(shared[::PAGE])
        held = HeldFiles(memory_devices())
        sample = sample_tree(TREE[0], held, SlotSegments(), limit=1)

        def read_and_unmap(pid: int) -> int:
            bytes_read = proportional_bytes(pid)
            shared.close()
            return bytes_read

        monkeypatch.setattr(memory_module, "proportional_bytes", read_and_unmap)
        exact = measure_tree(TREE, held, limit=1)
        assert shared.closed
        assert exact.is_exact
        assert 4 * FILE < exact.bytes_used < sample.bytes_used - 3 * FILE


def test_a_process_whose_first_thread_has_ended_holds_what_it_holds() -> None:
    """R43: the kernel shows its memory and its descriptors at its other threads only."""
    with leaderless(memory=32 << 20, files=16 << 20) as pid:
        held = HeldFiles(memory_devices())
        sample = sample_tree(pid, held, SlotSegments(), limit=1)
        assert sample.bytes_used >= 48 << 20
        exact = measure_tree(sample.tree, held, limit=1).bytes_used
        assert 48 << 20 <= exact <= sample.bytes_used

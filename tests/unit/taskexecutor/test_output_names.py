"""Names as long as a file system takes, bases by two mounts, links that lead to nothing, errors that stay (R28)."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime.aio.clock import LoopClock
from runtime.common.errors import InvalidInputError
from runtime.gateways.task import APPEND, OVERWRITE, OutputDirectory
from runtime.taskexecutor.outputs import repeat_commit
from runtime.taskexecutor.outputs.commit_records import NAME_MAX, aside_name, claim, commit_names
from runtime.taskexecutor.outputs.move_permit import Permit
from runtime.taskexecutor.outputs.output_move import OutputMove
from runtime.taskexecutor.outputs.storage_failures import in_words, is_final
from runtime.taskexecutor.storage.local_output_files import LocalOutputFiles
from tests.kit.control_plane.committed_outputs import JOB, attempt, attempt_path, commit, everything, order, visible

LONG = "n" * 245


@pytest.fixture
def other_disk(tmp_path: Path) -> Path:
    """A link to another file system, in the base."""
    shared_memory = Path("/dev/shm")
    if not os.access(shared_memory, os.W_OK) or shared_memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other file system here")
    target = shared_memory / f"flinklike-{os.getpid()}-{tmp_path.name}"
    target.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/day=1").symlink_to(target)
    return target


@pytest.mark.parametrize("mode", [OVERWRITE, APPEND])
@pytest.mark.parametrize("name", [LONG, "\u00e9" * 127, "n" * 255], ids=["245", "two bytes each", "255"])
def test_a_name_as_long_as_can_be_gets_to_another_disk(tmp_path: Path, other_disk: Path, mode: str, name: str) -> None:
    try:
        commit([attempt(tmp_path / "out", 0, mode=mode, **{f"day=1/{name}": "new"})])
        assert {path.name: path.read_text() for path in other_disk.iterdir()} == {name: "new"}
    finally:
        shutil.rmtree(other_disk)


@pytest.mark.parametrize("old", [{LONG: "old"}, {f"{LONG}/part": "old"}], ids=["a file", "a directory"])
def test_what_has_such_a_name_is_set_aside(tmp_path: Path, old: dict[str, str]) -> None:
    new = {LONG: "new"} if f"{LONG}/part" in old else {f"{LONG}/part": "new"}
    for name, text in old.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    commit([attempt(tmp_path, 0, mode=OVERWRITE, **new)])
    assert visible(tmp_path) == new
    assert not [name for name in everything(tmp_path) if "aside" in name]


def test_a_short_name_is_set_aside_as_an_earlier_release_does() -> None:
    """One that it has set aside is not set aside again: what has the name then is new."""
    assert aside_name(JOB, "a/b") == f"a/.commit-{JOB}-aside.b"
    assert all(len(os.fsencode(aside_name(JOB, "n" * length))) <= NAME_MAX for length in range(1, 256))


@pytest.mark.parametrize(
    "code", [errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EFBIG, errno.EACCES]
)
def test_what_never_succeeds_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    real, asked = LocalOutputFiles.put, 0

    def put(*args: Any, **options: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise OSError(code, os.strerror(code), "part-1")
        real(*args, **options)

    async def run() -> None:
        message = order([attempt(tmp_path, 0, a="1")])
        await OutputMove(message, Permit(), None, lambda *_: None, LoopClock(), patience=60.0).run()

    monkeypatch.setattr(LocalOutputFiles, "put", put)
    with pytest.raises(InvalidInputError, match=r"part-1.*bin/commit-outputs\.sh"):
        asyncio.run(run())
    assert asked == 1


@pytest.mark.parametrize(
    "code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT, errno.EINVAL]
)
def test_what_may_succeed_later_is_not_final(code: int) -> None:
    """Read-only until it is mounted for writing again. EINVAL is what drivers say of an upload that was cut short."""
    assert not is_final(OSError(code, "x"))


def test_a_failure_that_stays_says_what_to_do() -> None:
    assert "use shorter names" in in_words(OSError(errno.ENAMETOOLONG, "File name too long", "x"))
    assert "mounted read-only" in in_words(OSError(errno.EROFS, "Read-only file system", "x"))


# --- one directory, two names -----------------------------------------------------------------------------------------


def test_a_place_is_the_directory_itself_and_not_what_its_path_says(tmp_path: Path) -> None:
    """A bind mount has a path of its own that no link explains. So has a directory behind a rename."""
    base = tmp_path / "one"
    (base / "sub").mkdir(parents=True)
    place, inner = LocalOutputFiles(str(base)).place, LocalOutputFiles(str(base / "sub"))
    assert place in inner.outer_places
    assert inner.place not in inner.outer_places
    base.rename(tmp_path / "other")
    assert LocalOutputFiles(str(tmp_path / "other")).place == place
    assert LocalOutputFiles(str(base)).place not in {place, inner.place}


MOUNTED = """
import os, subprocess, sys
from pathlib import Path
from runtime.common.errors import InvalidInputError
from runtime.gateways.task import OutputDirectory
from tests.kit.control_plane.committed_outputs import attempt, attempt_path, commit, visible
root, kind = Path(sys.argv[1]), sys.argv[2]
base, other = root / "out", root / "mounted"
other.mkdir()
first = attempt(base, 0, mode="overwrite", a="1")
(base / "sub").mkdir()
subprocess.run(["mount", "--bind", base, other], check=True)
if kind == "one":
    second = attempt(other, 1, mode="overwrite", b="2")
    commit([first, second])
    assert visible(base) == {"a": "1", "b": "2"}, visible(base)
else:
    second = attempt(other / "sub", 1, mode="overwrite", b="2")
    try:
        commit([first, second])
    except InvalidInputError as error:
        assert "lies within" in str(error), error
    else:
        raise AssertionError(visible(base))
"""


@pytest.mark.parametrize("kind", ["one", "within"])
def test_a_base_by_two_mounts_is_one_base(tmp_path: Path, kind: str) -> None:
    """M2: both were believed to be bases, and the second one deleted what the first one had shown."""
    unshare = ["unshare", "-Urm", "--propagation", "private"]
    if subprocess.run([*unshare, "mount", "--bind", "/tmp", "/mnt"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespaces for us here")
    command = [*unshare, sys.executable, "-c", MOUNTED, str(tmp_path), kind]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr


def test_a_base_that_finds_the_claim_of_another_name_of_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by two mounts of a network file system, of which nothing says that they are one."""
    base, other = tmp_path / "out", tmp_path / "name"
    base.mkdir()
    other.symlink_to(base)
    (base / "old").write_text("old")
    first, second = attempt(base, 0, mode=OVERWRITE, a="1"), attempt(base, 1, mode=OVERWRITE, b="2")
    through = OutputDirectory(str(other), f"{other}/{attempt_path(second).name}", OVERWRITE)
    monkeypatch.setattr(LocalOutputFiles, "place", property(lambda self: self.base))
    with pytest.raises(InvalidInputError, match=rf"{base} and {other} are one directory under two names"):
        commit([first, through])
    assert visible(base) == {"old": "old"}
    assert attempt_path(first).exists()
    assert attempt_path(second).exists()


def test_an_order_of_an_earlier_release_is_believed(tmp_path: Path) -> None:
    output = attempt(tmp_path, 0, a="1")
    path = tmp_path / commit_names(JOB).order
    path.parent.mkdir()
    path.write_bytes(claim(order([output])))
    assert repeat_commit.main([str(path.parent)]) == 0
    assert visible(tmp_path) == {"a": "1"}

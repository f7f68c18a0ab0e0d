"""Links in a base: one place is one base, whatever its name; what a user has linked is followed, and kept."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.gateways.task import APPEND, OVERWRITE, OVERWRITE_PARTITIONS, OutputDirectory
from runtime.taskexecutor.storage.local_output_files import LocalOutputFiles
from tests.kit.control_plane.committed_outputs import DONE, attempt, attempt_path, commit, everything, visible


def through(link: Path, output: OutputDirectory) -> OutputDirectory:
    """The same attempt's directory, by another name of its base."""
    return OutputDirectory(str(link), str(link / attempt_path(output).name), output.mode)


def link(name: Path, target: Path) -> Path:
    target.mkdir(parents=True, exist_ok=True)
    name.parent.mkdir(parents=True, exist_ok=True)
    name.symlink_to(target)
    return name


def seen(base: Path) -> dict[str, str]:
    """As Spark's readers see it: links are followed."""
    found = {}
    for directory, _, names in os.walk(base, followlinks=True):
        found.update(
            {os.path.relpath(f"{directory}/{name}", base): Path(directory, name).read_text() for name in names}
        )
    return {name: text for name, text in found.items() if not any(one[0] in "._" for one in name.split("/"))}


@pytest.mark.parametrize("mode", [APPEND, OVERWRITE])
def test_a_base_and_a_link_to_it_are_one_base(tmp_path: Path, mode: str) -> None:
    base = tmp_path / "real"
    other = link(tmp_path / "name", base)
    first, second = attempt(base, 0, mode=mode, a="1"), attempt(base, 1, mode=mode, b="2")
    commit([first, through(other, second)])
    assert visible(base) == {"a": "1", "b": "2"}


def test_two_modes_for_one_place_are_refused_before_anything_is_seen(tmp_path: Path) -> None:
    base = tmp_path / "real"
    other = link(tmp_path / "name", base)
    outputs = [attempt(base, 0, a="1"), through(other, attempt(base, 1, mode=OVERWRITE, b="2"))]
    with pytest.raises(InvalidInputError, match=r"are one directory.*mode='append'.*mode='overwrite'"):
        commit(outputs)
    assert visible(base) == {}


def test_a_base_within_another_one_by_a_link_is_refused_before_anything_is_deleted(tmp_path: Path) -> None:
    base = tmp_path / "out"
    other = link(tmp_path / "name", base)
    (base / "sub").mkdir()
    (base / "sub/part").write_text("old")
    outer = attempt(base, 0, mode=OVERWRITE, a="1")
    inner = attempt(base / "sub", 1, mode=OVERWRITE, part="2")
    with pytest.raises(InvalidInputError, match=r"name/sub.*lies within.*out.*nothing of the job has become visible"):
        commit([outer, through(other / "sub", inner)])
    assert seen(base) == {"sub/part": "old"}


@pytest.mark.parametrize("mode", [OVERWRITE, OVERWRITE_PARTITIONS])
def test_a_partition_that_is_a_link_is_followed_and_kept(tmp_path: Path, mode: str) -> None:
    base, cold = tmp_path / "out", tmp_path / "cold/day=1"
    partition = link(base / "day=1", cold)
    (cold / "old").write_text("old")
    for number, text in enumerate(("new", "newer")):
        commit([attempt(base, number, mode=mode, **{f"day=1/{text}": text})], number + 1)
        assert seen(base) == {f"day=1/{text}": text}
        assert partition.is_symlink(), "it is the user's"
        _next_job(base)
    assert {path.name for path in cold.iterdir()} == {"newer"}


def _next_job(base: Path) -> None:
    (base / DONE).unlink()


def test_append_adds_behind_a_link(tmp_path: Path) -> None:
    base, cold = tmp_path / "out", tmp_path / "cold"
    link(base / "day=1", cold)
    (cold / "old").write_text("old")
    commit([attempt(base, 0, **{"day=1/new": "new"})])
    assert seen(base) == {"day=1/old": "old", "day=1/new": "new"}


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    shared_memory = Path("/dev/shm")
    if not os.access(shared_memory, os.W_OK) or shared_memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other file system here")
    with tempfile.TemporaryDirectory(dir=shared_memory) as directory:
        yield Path(directory)


@pytest.mark.parametrize("mode", [OVERWRITE, APPEND])
def test_a_partition_on_another_disk_gets_copies(tmp_path: Path, other_disk: Path, mode: str) -> None:
    """A rename does not cross file systems: a copy, whole before it has its name."""
    base, cold = tmp_path / "out", other_disk / "cold"
    link(base / "day=1", cold)
    (cold / "old").write_text("old")
    output = attempt(base, 0, mode=mode, **{"day=1/new": "new"})
    commit([output])
    assert seen(base) == {"day=1/new": "new", **({"day=1/old": "old"} if mode == APPEND else {})}
    assert {path.name for path in cold.iterdir()} == ({"new", "old"} if mode == APPEND else {"new"})
    assert not attempt_path(output).exists()


@pytest.mark.parametrize("text", ["new", "own"])
def test_a_copy_is_found_again_and_nobody_elses_file_is_taken_for_it(
    tmp_path: Path, other_disk: Path, text: str
) -> None:
    (tmp_path / "source").write_text("new")
    link(tmp_path / "day=1", other_disk / "cold")
    (other_disk / "cold/target").write_text(text)
    files = LocalOutputFiles(str(tmp_path))
    refused = contextlib.nullcontext() if text == "new" else pytest.raises(FileExistsError)
    with refused:
        files.put("source", "day=1/target", 3, may_replace=False, is_fresh=True)
    assert (tmp_path / "day=1/target").read_text() == text


def test_a_link_to_a_partition_beside_it_is_kept_and_its_files_count_once(tmp_path: Path) -> None:
    """As people name the latest one."""
    base = tmp_path / "out"
    latest = link(base / "latest", base / "day=2")
    (base / "day=2/part").write_text("old")
    commit([attempt(base, 0, mode=OVERWRITE, **{"day=2/part": "new"})])
    assert visible(base)["day=2/part"] == "new"
    assert latest.is_symlink()


@pytest.mark.parametrize("mode", [APPEND, OVERWRITE, OVERWRITE_PARTITIONS])
@pytest.mark.parametrize("target", ["out/day=2", ".", "nowhere"])
def test_who_writes_through_a_link_that_is_not_followed_is_refused(tmp_path: Path, mode: str, target: str) -> None:
    base = tmp_path / "out"
    (base / "day=2").mkdir(parents=True)
    (base / "day=2/part").write_text("old")
    (base / "latest").symlink_to(tmp_path / target)
    with pytest.raises(InvalidInputError, match=r"latest is a link to .*nothing of the job has become visible"):
        commit([attempt(base, 0, mode=mode, **{"latest/new": "new"})])
    assert (base / "day=2/part").read_text() == "old"
    assert (base / "latest").is_symlink()


def test_a_link_to_nothing_is_kept(tmp_path: Path) -> None:
    """As one to a disk that is away."""
    base = tmp_path / "out"
    base.mkdir()
    (base / "day=1").symlink_to(tmp_path / "away")
    commit([attempt(base, 0, mode=OVERWRITE, **{"day=2/new": "new"})])
    assert (base / "day=1").is_symlink()


@pytest.mark.parametrize("mode", [APPEND, OVERWRITE, OVERWRITE_PARTITIONS])
@pytest.mark.parametrize("target", ["itself", "file/below", "x" * 300], ids=["itself", "below", "long"])
def test_a_link_that_cannot_lead_anywhere_is_kept(tmp_path: Path, mode: str, target: str) -> None:
    base = tmp_path / "out"
    base.mkdir()
    (base / "itself").symlink_to(target)
    (base / "file").write_text("old")
    commit([attempt(base, 0, mode=mode, new="new")])
    assert (base / "itself").is_symlink()
    assert (base / "new").read_text() == "new"
    assert (base / "file").exists() == (mode == APPEND)
    _next_job(base)
    with pytest.raises(InvalidInputError, match=r"itself is a link to .*nothing of the job has become visible"):
        commit([attempt(base, 1, mode=mode, **{"itself/new": "new"})], 2)


def test_a_link_to_a_file_is_replaced_as_a_file_and_its_target_is_not(tmp_path: Path) -> None:
    base = tmp_path / "out"
    base.mkdir()
    (tmp_path / "file").write_text("mine")
    (base / "part").symlink_to(tmp_path / "file")
    commit([attempt(base, 0, mode=OVERWRITE, new="new")])
    assert seen(base) == {"new": "new"}
    assert (tmp_path / "file").read_text() == "mine"


def test_hidden_work_of_a_job_that_writes_within_is_not_old(tmp_path: Path) -> None:
    base = tmp_path / "out"
    foreign = base / "day=1/.attempt-other_0/part"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("theirs")
    commit([attempt(base, 0, mode=OVERWRITE, new="new")])
    assert foreign.read_text() == "theirs"


# --- files where directories are to be, and the other way round -------------------------------------------------------


WAYS = [({"y": "old"}, {"y/part": "new"}), ({"y/part": "old", "y/z/more": "old"}, {"y": "new"})]


def place(base: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(text)


@pytest.mark.parametrize(("old", "new"), WAYS)
def test_overwrite_takes_a_file_out_of_the_way_of_a_directory_and_the_reverse(
    tmp_path: Path, old: dict[str, str], new: dict[str, str]
) -> None:
    place(tmp_path, old)
    commit([attempt(tmp_path, 0, mode=OVERWRITE, **new)])
    assert visible(tmp_path) == new
    assert not [name for name in everything(tmp_path) if "aside" in name]


@pytest.mark.parametrize("mode", [APPEND, OVERWRITE_PARTITIONS])
@pytest.mark.parametrize(("old", "new"), WAYS)
def test_other_modes_refuse_what_is_in_the_way_before_anything_is_seen(
    tmp_path: Path, mode: str, old: dict[str, str], new: dict[str, str]
) -> None:
    place(tmp_path, old)
    with pytest.raises(InvalidInputError, match=r"y is a (file|directory).*nothing of the job has become visible"):
        commit([attempt(tmp_path, 0, mode=mode, a="1", **new)])
    assert visible(tmp_path) == old


def test_an_empty_directory_is_in_the_way_too(tmp_path: Path) -> None:
    (tmp_path / "y").mkdir()
    commit([attempt(tmp_path, 0, mode=OVERWRITE, y="new")])
    assert visible(tmp_path) == {"y": "new"}


def test_a_linked_directory_in_the_way_goes_and_its_target_stays(tmp_path: Path) -> None:
    base = tmp_path / "out"
    link(base / "y", tmp_path / "elsewhere")
    (tmp_path / "elsewhere/part").write_text("mine")
    commit([attempt(base, 0, mode=OVERWRITE, y="new")])
    assert seen(base) == {"y": "new"}
    assert (tmp_path / "elsewhere/part").read_text() == "mine"


def test_two_subtasks_that_write_a_file_and_a_directory_of_one_name_are_refused(tmp_path: Path) -> None:
    outputs = [attempt(tmp_path, 0, mode=OVERWRITE, y="1"), attempt(tmp_path, 1, mode=OVERWRITE, **{"y/part": "2"})]
    with pytest.raises(InvalidInputError, match="another subtask wrote a file of that name"):
        commit(outputs)

"""Archives that were made to hurt: each ends in one sentence, within its limits, outside of the TaskManager (R42)."""

from __future__ import annotations

import asyncio
import os
import signal
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.system.linux import children_of, is_alive, name_of
from runtime.taskexecutor.unpacking.archive import unpack
from runtime.taskexecutor.unpacking.limits import Budget, UnpackLimits
from runtime.taskexecutor.unpacking.messages import ArchiveToUnpack
from runtime.taskexecutor.unpacking.process import unpack_archives
from tests.kit.strangers import hostile_archives as hostile
from tests.kit.strangers.hostile_archives import MIB, member, tar_of

LINK, HARD_LINK, DIRECTORY = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


def unpacked(archive: Path, name: str = "", **limits: int) -> Path:
    out = archive.with_name("out")
    unpack(archive, name or archive.name, out, Budget(UnpackLimits(**limits)))
    return out


def refused(archive: Path, match: str, name: str = "", **limits: int) -> Path:
    with pytest.raises(InvalidInputError, match=match):
        unpacked(archive, name, **limits)
    return archive.with_name("out")


# --- sizes and numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_is_not_read_that_is_larger_than_headers_are(tmp_path: Path, kind: bytes) -> None:
    archive = hostile.large_header(tmp_path / "x.tar.gz", kind=kind, mebibytes=16)
    tracemalloc.start()
    try:
        refused(archive, "a header of 16777216 bytes")
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


def test_members_are_counted_while_they_come(tmp_path: Path) -> None:
    out = refused(hostile.many_members(tmp_path / "x.tar.gz", 5000), "too many members", entries_max=1000)
    assert len(list(out.iterdir())) <= 1000


def test_directories_that_no_member_names_are_counted(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "x.tar", *(member("/".join([str(number), *"abcdefgh"])) for number in range(200)))
    refused(archive, "too many members", entries_max=1000)


def test_members_are_forgotten(tmp_path: Path) -> None:
    archive = hostile.many_members(tmp_path / "x.tar.gz", 20_000)
    tracemalloc.start()
    try:
        refused(archive, "too many members", entries_max=19_000)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst"])
def test_bytes_are_counted_while_they_come(tmp_path: Path, suffix: str) -> None:
    out = refused(hostile.large_member(tmp_path / f"x.{suffix}", 64), r"too large: .* 1048576 bytes", bytes_max=MIB)
    assert sum(path.stat().st_size for path in out.iterdir()) <= MIB


def test_a_header_bomb_is_counted_too(tmp_path: Path) -> None:
    archive = hostile.large_header(tmp_path / "x.tar.gz", mebibytes=1)
    refused(archive, "too large", bytes_max=1000, entries_max=2)


def test_headers_of_headers_end(tmp_path: Path) -> None:
    refused(hostile.header_chain(tmp_path / "x.tar", 5000), "cannot be unpacked")


def test_members_that_overlap_are_refused(tmp_path: Path) -> None:
    out = refused(hostile.overlapping_zip(tmp_path / "x.zip", 9), "overlap")
    assert not list(out.iterdir())


def test_the_archives_of_a_job_share_its_limits(tmp_path: Path) -> None:
    budget = Budget(UnpackLimits(entries_max=7))
    for number in range(2):
        hostile.many_members(tmp_path / f"{number}.tar", 5)
    unpack(tmp_path / "0.tar", "0.tar", tmp_path / "0", budget)
    with pytest.raises(InvalidInputError, match=r"archive 1\.tar has too many members"):
        unpack(tmp_path / "1.tar", "1.tar", tmp_path / "1", budget)


# --- places -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["/etc", "..", "../..", "a/../../..", "b/..", ""])
def test_a_link_that_may_lead_out_is_refused(tmp_path: Path, to: str) -> None:
    archive = tar_of(tmp_path / "x.tar", member("link", LINK, to=to))
    refused(archive, "links are relative, stay within")


def test_links_cannot_be_chained_out(tmp_path: Path) -> None:
    """`s` leads to the root; by its text `t` would stay within."""
    archive = tar_of(tmp_path / "x.tar", member("a/b/c/s", LINK, to="../../.."), member("t", LINK, to="a/b/c/s/../.."))
    refused(archive, "links are relative, stay within")


def test_links_that_stay_within_are_kept(tmp_path: Path) -> None:
    program = member("lib/a/python3.11", size=2)
    links = (member("bin/python", LINK, to="../lib/a/python3.11"), member("bin/python3", LINK, to="python"))
    out = unpacked(tar_of(tmp_path / "x.tar", program, *links, member("lib64", LINK, to="lib")))
    assert (out / "bin/python3").read_bytes() == b"xx"
    assert (out / "lib64/a/python3.11").exists()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    archive = tar_of(tmp_path / "x.tar", member("d/e", DIRECTORY), member("l", LINK, to="d"), member("l/f", size=1))
    out = refused(archive, "'l' as a directory and as something else")
    assert not (out / "d/f").exists()


def test_a_file_does_not_replace_a_link(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "x.tar", member("l", LINK, to="d"), member("l", size=1))
    out = refused(archive, "File exists")
    assert not (out / "d").exists()


@pytest.mark.parametrize("to", ["/etc/passwd", "../outside", "missing", "link", "directory", "through/file"])
def test_a_hard_link_leads_to_a_file_of_the_archive(tmp_path: Path, to: str) -> None:
    (tmp_path / "outside").write_text("x")
    archive = tar_of(
        tmp_path / "x.tar",
        member("directory/file", size=1),
        member("link", LINK, to="directory/file"),
        member("through", LINK, to="directory"),
        member("hard", HARD_LINK, to=to),
    )
    refused(archive, r"which is no file before it|leads out")


def test_a_hard_link_to_a_file_before_it_is_kept(tmp_path: Path) -> None:
    out = unpacked(tar_of(tmp_path / "x.tar", member("a/file", size=1), member("hard", HARD_LINK, to="a/file")))
    assert (out / "hard").stat().st_ino == (out / "a/file").stat().st_ino


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(tmp_path: Path, kind: bytes) -> None:
    refused(tar_of(tmp_path / "x.tar", member("device", kind)), "neither file, directory nor link")


def test_a_pipe_in_a_zip_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("pipe")
    info.external_attr = 0o010644 << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "")
    refused(tmp_path / "x.zip", "neither file nor directory")


@pytest.mark.parametrize("name", ["x.tar", "x.zip"])
def test_a_name_comes_once(tmp_path: Path, name: str) -> None:
    if name == "x.tar":
        tar_of(tmp_path / name, member("a", size=1), member("./a", size=1))
    else:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("a", "1")
            archive.writestr("./a", "2")
    refused(tmp_path / name, "File exists")


def test_names_that_differ_by_case_are_two_names(tmp_path: Path) -> None:
    """On a file system that tells them apart; else the second one exists already, as the same name does."""
    out = unpacked(tar_of(tmp_path / "x.tar", member("a/File", size=1), member("A/file", size=2)))
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*ile")) == ["A/file", "a/File"]


def test_permissions_of_others_and_set_uid_bits_are_left_out(tmp_path: Path) -> None:
    program = member("program", size=1)
    program.mode = 0o6777
    assert unpacked(tar_of(tmp_path / "x.tar", program)).joinpath("program").stat().st_mode & 0o7777 == 0o755


# --- damage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [b"\x01" * 512, b"ustar" * 20])
def test_what_is_no_header_is_not_taken_for_the_end(tmp_path: Path, tail: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(hostile.tar_header("a", 0) + tail)
    refused(tmp_path / "x.tar", "damaged or cut off")


def test_data_that_is_not_there_is_missed(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(hostile.tar_header("a", 2 * MIB) + bytes(MIB))
    refused(tmp_path / "x.tar", "unexpected end of data")


def test_a_member_that_begins_before_the_last_one_is_refused(tmp_path: Path) -> None:
    record = b"18 size=-10000000\n"
    header = hostile.tar_header("h", len(record), tarfile.XHDTYPE) + record.ljust(512, b"\0")
    (tmp_path / "x.tar").write_bytes(hostile.tar_header("a", 0) + header + hostile.tar_header("b", 0) + bytes(1024))
    refused(tmp_path / "x.tar", "a header of -10000000 bytes")


# --- the process --------------------------------------------------------------------------------------------


def orders(archive: Path, root: Path) -> tuple[ArchiveToUnpack, ...]:
    return (ArchiveToUnpack(str(archive), archive.name, str(root)),)


async def in_a_process(archive: Path, limits: UnpackLimits) -> None:
    await unpack_archives(orders(archive, archive.with_name("out")), limits)


@pytest.mark.asyncio
async def test_a_process_unpacks(tmp_path: Path) -> None:
    await in_a_process(tar_of(tmp_path / "x.tar", member("a/b", size=3)), UnpackLimits())
    assert (tmp_path / "out/a/b").read_bytes() == b"xxx"
    assert not [pid for pid in children_of(os.getpid()) if name_of(pid) == "unpack"]


@pytest.mark.asyncio
async def test_the_process_says_why_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"archive x\.tar\.gz has a header of"):
        await in_a_process(hostile.large_header(tmp_path / "x.tar.gz", mebibytes=4), UnpackLimits())


@pytest.mark.asyncio
async def test_memory_is_limited(tmp_path: Path) -> None:
    """A list of members that is larger than the process may be."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for number in range(3000):
            info = zipfile.ZipInfo(f"{number:05d}")
            info.extra, info.comment = b"\1\1\xf0\xff" + bytes(0xFFF0), bytes(0xFFF0)
            archive.writestr(info, "")
    with pytest.raises(InvalidInputError, match="needs more memory"):
        await in_a_process(tmp_path / "x.zip", UnpackLimits(memory_bytes_max=128 * MIB))


@pytest.mark.asyncio
async def test_processor_time_is_limited(tmp_path: Path) -> None:
    archive = hostile.large_member(tmp_path / "x.tar.bz2", 600)
    with pytest.raises(InvalidInputError, match="more than 1 s of processor time"):
        await in_a_process(archive, UnpackLimits(cpu_seconds_max=1))


@pytest.mark.asyncio
async def test_time_is_limited_and_nobodys_fault(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.tar")
    with pytest.raises(UnavailableError, match=r"longer than 0\.5 s"):
        await in_a_process(tmp_path / "x.tar", UnpackLimits(timeout=0.5))
    assert not [pid for pid in children_of(os.getpid()) if name_of(pid) == "unpack"]


async def child() -> int:
    while not (found := [pid for pid in children_of(os.getpid()) if name_of(pid) == "unpack"]):
        await asyncio.sleep(0.01)
    return found[0]


@pytest.mark.asyncio
@pytest.mark.parametrize(("number", "error"), [(signal.SIGKILL, UnavailableError), (signal.SIGSEGV, InvalidInputError)])
async def test_a_process_that_is_killed_has_not_unpacked(
    tmp_path: Path, number: signal.Signals, error: type[Exception]
) -> None:
    os.mkfifo(tmp_path / "x.tar")
    unpacking = asyncio.ensure_future(in_a_process(tmp_path / "x.tar", UnpackLimits()))
    os.kill(await child(), number)
    with pytest.raises(error, match=r"was ended by signal 9|SIGSEGV"):
        await unpacking


@pytest.mark.asyncio
async def test_who_waits_no_more_leaves_no_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.tar")
    unpacking = asyncio.ensure_future(in_a_process(tmp_path / "x.tar", UnpackLimits()))
    pid = await child()
    unpacking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unpacking
    assert not is_alive(pid)


@pytest.mark.asyncio
async def test_the_host_is_not_taken_for_the_archive(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        await in_a_process(tmp_path / "x.tar", UnpackLimits())

"""Archives never lead out of their directory and never grow without a bound."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import resource
import signal
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.unpacking.archive import unpack
from runtime.taskexecutor.unpacking.limits import Budget, UnpackLimits


def zip_of(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


@pytest.mark.parametrize("name", ["a.zip", "a.jar", "A.ZIP"])
def test_a_zip_is_unpacked(tmp_path: Path, name: str) -> None:
    archive = zip_of(tmp_path / "x", **{"dir/file.txt": "hello", "empty/": ""})
    unpack(archive, name, tmp_path / "out", Budget(UnpackLimits()))
    assert (tmp_path / "out/dir/file.txt").read_text() == "hello"
    assert (tmp_path / "out/empty").is_dir()


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tgz"])
def test_a_tar_is_unpacked_with_links_and_executable_bits(tmp_path: Path, name: str) -> None:
    program = tarfile.TarInfo("bin/python")
    program.mode = 0o755
    archive = tar_of(tmp_path / name, (program, b"#!"), (link("bin/python3", "python"), b""))
    unpack(archive, name, tmp_path / "out", Budget(UnpackLimits()))
    assert (tmp_path / "out/bin/python3").read_bytes() == b"#!"
    assert (tmp_path / "out/bin/python").stat().st_mode & stat.S_IXUSR


def test_a_zip_keeps_executable_bits(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("run.sh")
    info.external_attr = 0o755 << 16
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr(info, "#!")
    unpack(tmp_path / "x", "x.zip", tmp_path / "out", Budget(UnpackLimits()))
    assert (tmp_path / "out/run.sh").stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize("member", ["../evil", "/etc/evil", "a/../../evil", "..\\evil"])
def test_a_zip_that_leads_out_is_refused(tmp_path: Path, member: str) -> None:
    with pytest.raises(InvalidInputError, match="leads out"):
        unpack(zip_of(tmp_path / "x", **{member: "x"}), "x.zip", tmp_path / "out", Budget(UnpackLimits()))
    assert not (tmp_path / "evil").exists()


def test_a_zip_with_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(InvalidInputError, match="symbolic link"):
        unpack(tmp_path / "x", "x.zip", tmp_path / "out", Budget(UnpackLimits()))


@pytest.mark.parametrize("member", [tarfile.TarInfo("../evil"), tarfile.TarInfo("/evil"), tarfile.TarInfo("a/../../e")])
def test_a_tar_that_leads_out_is_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    with pytest.raises(InvalidInputError, match="leads out"):
        unpack(tar_of(tmp_path / "x.tar", (member, b"")), "x.tar", tmp_path / "out", Budget(UnpackLimits()))


def test_an_archive_above_the_limits_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    archive = zip_of(tmp_path / "x", a="x" * 1000, b="y" * 1000)
    with pytest.raises(InvalidInputError, match=r"too large: .* 1999 bytes"):
        unpack(archive, "x.zip", tmp_path / "1", Budget(UnpackLimits(bytes_max=1999)))
    with pytest.raises(InvalidInputError, match=r"too many members: .* 1 entries"):
        unpack(archive, "x.zip", tmp_path / "2", Budget(UnpackLimits(entries_max=1)))
    assert not list((tmp_path / "1").iterdir())


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])
def test_a_damaged_archive_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_bytes(b"no archive")
    with pytest.raises(InvalidInputError, match=f"archive {name}"):
        unpack(tmp_path / "x", name, tmp_path / "out", Budget(UnpackLimits()))


def damaged(path: Path, kind: str) -> Path:
    """A zip that opens and cannot be read to its end."""
    if kind == "twice":
        with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a", "1")
            archive.writestr("a", "2")
        return path
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", "x" * 1000)
    data = bytearray(path.read_bytes())
    directory = data.index(b"PK\x01\x02")
    if kind == "encrypted":
        data[6] |= 1
        data[directory + 8] |= 1
    elif kind == "unknown method":
        data[8] = data[directory + 10] = 97
    else:
        data[31:36] = b"\xff" * 5
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", ["twice", "encrypted", "unknown method", "deflated badly"])
def test_a_zip_that_cannot_be_unpacked_is_the_users_failure(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidInputError, match=r"archive x\.zip cannot be unpacked"):
        unpack(damaged(tmp_path / "x", kind), "x.zip", tmp_path / "out", Budget(UnpackLimits()))


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz"])
def test_a_tar_whose_data_is_damaged_is_refused(tmp_path: Path, suffix: str) -> None:
    compressors: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
    data = bytearray(
        compressors[suffix](tar_of(tmp_path / "t.tar", (tarfile.TarInfo("a"), os.urandom(50_000))).read_bytes())
    )
    if suffix == "gz":
        del data[20_000:]  # what is changed inside is found at the end only, which the reader never reaches
    else:
        data[20_000:20_100] = bytes(100)
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(InvalidInputError, match="cannot be unpacked"):
        unpack(tmp_path / "x", f"x.tar.{suffix}", tmp_path / "out", Budget(UnpackLimits()))


def test_a_member_that_is_a_file_and_a_directory_is_refused(tmp_path: Path) -> None:
    archive = zip_of(tmp_path / "x", **{"a": "1", "a/b": "2"})
    with pytest.raises(InvalidInputError, match="'a' as a directory and as something else"):
        unpack(archive, "x.zip", tmp_path / "out", Budget(UnpackLimits()))


def test_a_full_disk_is_not_the_archives_fault(tmp_path: Path) -> None:
    archive = zip_of(tmp_path / "x", a="x" * 10_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            unpack(archive, "x.zip", tmp_path / "out", Budget(UnpackLimits()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"x\.rar is no archive"):
        unpack(tmp_path, "x.rar", tmp_path / "out", Budget(UnpackLimits()))


def test_a_wheels_libraries_move_to_the_top(tmp_path: Path) -> None:
    wheel = zip_of(tmp_path / "w", **{"mine/__init__.py": "", "mine-1.data/purelib/extra.py": "x = 1"})
    unpack(wheel, "mine-1-py3-none-any.whl", tmp_path / "out", Budget(UnpackLimits()), is_wheel=True)
    assert (tmp_path / "out/extra.py").read_text() == "x = 1"
    assert (tmp_path / "out/mine/__init__.py").exists()
    assert not (tmp_path / "out/mine-1.data/purelib").exists()

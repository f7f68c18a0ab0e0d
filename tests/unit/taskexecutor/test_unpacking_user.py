"""R42 where slots are users of their own: archives are read by a user without rights, and root follows no link."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import struct
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.aio.scope import ServiceScope
from runtime.common.errors import InvalidInputError
from runtime.gateways.task import BlobReference
from runtime.taskexecutor.containment.user_processes import processes_of
from runtime.taskexecutor.directories.job_directory import JobDirectories
from runtime.taskexecutor.directories.job_users import closed_to_others
from runtime.taskexecutor.unpacking.lending import lend, take_back
from runtime.taskexecutor.unpacking.limits import UnpackLimits
from runtime.taskexecutor.unpacking.messages import ArchiveToUnpack
from runtime.taskexecutor.unpacking.process import unpack_archives_as
from tests.kit.control_plane.task_messages import job_information

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="users of their own need root")

USER = 2_000_000_000 + 2 * os.getpid()
"""Of this process only: what ends all processes of a user would end those of another test."""
SOMEBODY = USER + 1
UNBOUND = UnpackLimits()
ACL = "system.posix_acl_access"

Hijack = Callable[[str], None]


@pytest.fixture
def open_path() -> Iterator[Path]:
    """pytest's own is closed to others."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o711)
    if (closed := closed_to_others([path])) is not None:
        pytest.skip(f"{closed} is closed to others")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def hijack(open_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hijack:
    """Code that runs in the process where it reads the first header: as what a parser with a hole would run."""

    def prepare(code: str) -> None:
        body = "\n    ".join(["import json, os, sys, time", *code.strip().splitlines()])
        text = f"import tarfile\ndef begin(self):\n    {body}\n    return None\ntarfile.TarFile.next = begin\n"
        (open_path / "hole").mkdir()
        (open_path / "hole" / "sitecustomize.py").write_text(text)
        paths = [str(open_path / "hole"), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    return prepare


def tar_with(**members: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


async def unpack_as_user(path: Path, content: bytes, limits: UnpackLimits = UNBOUND) -> Path:
    """Where it is then; the archive itself is for root only."""
    archive, out = path / "x.tar", path / "building" / "work" / "out"
    archive.write_bytes(content)
    archive.chmod(0o600)
    orders = (ArchiveToUnpack(str(archive), "x.tar", str(out)),)
    await unpack_archives_as(USER, orders, limits, path / "building")
    return out


def inline(name: str, content: bytes) -> BlobReference:
    return BlobReference("", hashlib.sha256(content).hexdigest(), len(content), name, content)


def modes(path: Path) -> list[str]:
    status = path.lstat()
    return [f"{status.st_uid}:{status.st_gid}", oct(stat.S_IMODE(status.st_mode))]


@pytest.mark.asyncio
async def test_what_reads_archives_has_no_rights(open_path: Path, hijack: Hijack) -> None:
    secret, told = open_path / "secret", open_path / "building/work/out/told"
    secret.write_text("root's")
    secret.chmod(0o600)
    hijack(f"""
done = []
for what in ({str(secret)!r}, {str(open_path / "x.tar")!r}, f"/proc/{{os.getppid()}}/environ"):
    try:
        done.append(open(what, "rb").read(1) and what)
    except OSError:
        pass
for where in ({str(open_path)!r}, {str(open_path / "building")!r}, {str(open_path / "building/work")!r}):
    try:
        os.mkdir(where + "/made")
        done.append(where)
    except OSError:
        pass
for act in (lambda: os.setresuid(0, 0, 0), lambda: os.kill(os.getppid(), 0)):
    try:
        act()
        done.append("root's")
    except OSError:
        pass
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
who = [os.getresuid(), os.getresgid(), os.getgroups(), int(status["CapPrm"], 16), int(status["NoNewPrivs"])]
open({str(told)!r}, "w").write(json.dumps([who, done]))
""")
    before = os.getgroups()
    os.setgroups([12, 34])  # as root has in many places
    try:
        await unpack_as_user(open_path, tar_with(a="a"))
    finally:
        os.setgroups(before)
    who, done = json.loads(told.read_text())
    assert who == [[USER] * 3, [USER] * 3, [], 0, 1]
    assert done == []


@pytest.mark.asyncio
async def test_what_it_writes_is_roots_then(open_path: Path) -> None:
    out = await unpack_as_user(open_path, tar_with(**{"a/b": "text"}))
    assert (out / "a" / "b").read_text() == "text"
    assert [modes(path) for path in (out, out / "a", out / "a" / "b")] == [
        ["0:0", "0o700"],
        ["0:0", "0o700"],
        ["0:0", "0o600"],
    ]


@pytest.mark.asyncio
async def test_what_it_leaves_running_ends(open_path: Path, hijack: Hijack) -> None:
    hijack("""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(3):
            os.close(number)
        time.sleep(1000)
    os._exit(0)
os.wait()
""")
    await unpack_as_user(open_path, tar_with(a="a"))
    left = processes_of(USER)
    for pid in left:
        os.kill(pid, 9)
    assert left == []


@pytest.mark.asyncio
async def test_it_cannot_have_many_processes(open_path: Path, hijack: Hijack) -> None:
    told = open_path / "building/work/out/told"
    hijack(f"""
number = 0
try:
    while number < 100:
        if os.fork() == 0:
            time.sleep(1000)
        number += 1
except OSError:
    pass
open({str(told)!r}, "w").write(str(number))
time.sleep(1000)
""")
    with pytest.raises(Exception, match="longer than"):
        await unpack_as_user(open_path, tar_with(a="a"), UnpackLimits(timeout=3))
    assert 0 < int(told.read_text()) < 100
    assert processes_of(USER) == []


def lent(path: Path) -> Path:
    out = path / "building" / "out"
    lend(path / "building", [out], USER)
    return out


def put(path: Path, text: str, owner: int = USER) -> Path:
    path.write_text(text)
    os.chown(path, owner, owner)
    path.chmod(0o644)
    return path


def test_a_link_to_a_file_of_others_is_refused(tmp_path: Path) -> None:
    out, foreign = lent(tmp_path), put(tmp_path / "foreign", "somebody's", SOMEBODY)
    (out / "linked").hardlink_to(foreign)
    with pytest.raises(InvalidInputError, match="a link to a file that is not its own"):
        take_back([out], USER)
    assert modes(foreign) == [f"{SOMEBODY}:{SOMEBODY}", "0o644"]


def test_no_symbolic_link_is_followed(tmp_path: Path) -> None:
    out, foreign = lent(tmp_path), put(tmp_path / "foreign", "somebody's", SOMEBODY)
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (out / "file").symlink_to(foreign)
    (out / "directory").symlink_to(tmp_path / "elsewhere")
    take_back([out], USER)
    assert modes(foreign) == [f"{SOMEBODY}:{SOMEBODY}", "0o644"]
    assert modes(tmp_path / "elsewhere")[1] == "0o755"
    assert modes(out / "file")[0] == "0:0"


def test_a_file_may_have_several_names(tmp_path: Path) -> None:
    out = lent(tmp_path)
    (out / "b").hardlink_to(put(out / "a", "one"))
    take_back([out], USER)
    assert modes(out / "a") == modes(out / "b") == ["0:0", "0o600"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    out = lent(tmp_path)
    os.mkfifo(out / "pipe")
    with pytest.raises(InvalidInputError, match="neither file, directory nor link"):
        take_back([out], USER)


def test_nobody_keeps_rights_by_a_list(tmp_path: Path) -> None:
    out = lent(tmp_path)
    nobody = 2**32 - 1
    entries = [(1, 7, nobody), (2, 7, SOMEBODY), (4, 0, nobody), (16, 7, nobody), (32, 0, nobody)]
    try:
        os.setxattr(out, ACL, struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries))
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    take_back([out], USER)
    assert ACL not in os.listxattr(out)


def test_a_name_without_end_is_refused(tmp_path: Path) -> None:
    out = lent(tmp_path)
    here = os.open(out, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("x" * 200, dir_fd=here)
        os.chown("x" * 200, USER, USER, dir_fd=here)
        below = os.open("x" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(InvalidInputError, match="whose name is too long"):
        take_back([out], USER)


@pytest.mark.asyncio
async def test_jobs_have_their_archives(open_path: Path) -> None:
    scope = ServiceScope("test")
    await scope.open()
    jobs = open_path / "jobs"
    directories = JobDirectories(jobs, None, scope, UnpackLimits(), lambda _: USER)  # type: ignore[arg-type]
    jobs.chmod(0o711)
    job = job_information(
        files=(inline("data.csv", b"1,2"),),
        archives=(inline("env.tgz#environment", tar_with(**{"a/b": "deep"})), inline("two.tar", tar_with(b=""))),
    )
    directory = await directories.prepare(job)
    assert sorted(path.name for path in directory.work.iterdir()) == ["data.csv", "environment", "two.tar"]
    assert (directory.work / "environment/a/b").read_text() == "deep"
    assert {modes(path)[0].partition(":")[0] for path in directory.root.rglob("*")} == {"0"}
    await scope.close()

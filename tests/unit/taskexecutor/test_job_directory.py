"""Directories of jobs: what lies where, prepared once, deleted with the job."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import signal
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.aio.scope import ServiceScope
from runtime.common.errors import InvalidInputError, NotFoundError, UnavailableError
from runtime.gateways.task import BlobReference, TaskInformation
from runtime.system.linux import children_of, name_of
from runtime.taskexecutor.directories.job_directory import JobDirectories
from runtime.taskexecutor.unpacking.limits import UnpackLimits
from tests.kit.control_plane.task_messages import VERTEX, job_id, job_information
from tests.kit.strangers import hostile_archives as hostile

pytestmark = pytest.mark.asyncio


class MemoryBlobs:
    """A blob store with a local cache directory."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.asked: list[str] = []
        self.release = asyncio.Event()
        self.release.set()

    def put(self, name: str, content: bytes) -> BlobReference:
        sha256 = hashlib.sha256(content).hexdigest()
        key = f"{sha256}-1"
        (self.cache / key).write_bytes(content)
        return BlobReference(key, sha256, len(content), name)

    @asynccontextmanager
    async def file(self, key: str, /) -> AsyncIterator[Path]:
        self.asked.append(key)
        await self.release.wait()
        path = self.cache / key
        if not path.exists():
            message = f"no blob {key}"
            raise NotFoundError(message)
        yield path


class Box:
    def __init__(self, root: Path, scope: ServiceScope) -> None:
        (root / "cache").mkdir()
        self.blobs = MemoryBlobs(root / "cache")
        self.root = root / "jobs"
        self.directories = JobDirectories(self.root, self.blobs, scope, UnpackLimits())


@pytest_asyncio.fixture
async def box(tmp_path: Path) -> AsyncIterator[Box]:
    scope = ServiceScope("test")
    await scope.open()
    yield Box(tmp_path, scope)
    await scope.close()


def inline(name: str, content: bytes) -> BlobReference:
    return BlobReference("", hashlib.sha256(content).hexdigest(), len(content), name, content)


def zipped(**members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


async def test_a_job_without_files_has_an_empty_working_directory(box: Box) -> None:
    directory = await box.directories.prepare(job_information())
    assert directory.work.is_dir()
    assert directory.python_path == ()
    await box.directories.delete(job_id(1))
    assert not list(box.root.iterdir())


async def test_everything_lies_where_a_task_expects_it(box: Box) -> None:
    job = job_information(
        files=(box.blobs.put("data.csv", b"1,2"), inline("small.txt#renamed.txt", b"s")),
        archives=(
            box.blobs.put("env.zip#environment", zipped(**{"a/b.txt": "deep"})),
            inline("raw.zip", zipped(c="c")),
        ),
        py_files=(inline("helper.py", b"x = 1"), inline("lib.zip", zipped(m="")), inline("other.py", b"y = 2")),
        wheels=(inline("mine-1-py3-none-any.whl", zipped(**{"mine.py": "z = 3"})),),
    )
    directory = await box.directories.prepare(job)
    assert sorted(path.name for path in directory.work.iterdir()) == [
        "data.csv",
        "environment",
        "raw.zip",
        "renamed.txt",
    ]
    assert (directory.work / "environment/a/b.txt").read_text() == "deep"
    assert (directory.work / "raw.zip/c").read_text() == "c"
    relative = [str(path.relative_to(directory.root)) for path in directory.python_path]
    assert relative == ["python", "python/lib.zip", "wheels/0"]
    assert all(path.exists() for path in directory.python_path)
    assert (directory.python_path[2] / "mine.py").exists()


async def test_concurrent_tasks_share_one_preparation(box: Box) -> None:
    job = job_information(files=(box.blobs.put("a", b"a"),))
    box.blobs.release.clear()
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(box.directories.prepare(job)) for _ in range(5)]
        await asyncio.sleep(0)
        box.blobs.release.set()
    assert len({task.result() for task in asked}) == 1
    assert len(box.blobs.asked) == 1


async def test_a_cancelled_task_takes_nothing_from_the_others(box: Box) -> None:
    job = job_information(files=(box.blobs.put("a", b"a"),))
    box.blobs.release.clear()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(box.directories.prepare(job))
        second = tasks.create_task(box.directories.prepare(job))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        box.blobs.release.set()
    assert (second.result().work / "a").read_text() == "a"


async def test_a_failed_preparation_leaves_nothing_and_is_tried_again(box: Box) -> None:
    missing = BlobReference("0" * 64 + "-1", "0" * 64, 1, "a")
    with pytest.raises(NotFoundError):
        await box.directories.prepare(job_information(files=(missing,)))
    bad = inline("bad.zip", b"no zip")
    with pytest.raises(InvalidInputError, match=r"bad\.zip"):
        await box.directories.prepare(job_information(archives=(bad,)))
    assert not list(box.root.iterdir())
    assert (await box.directories.prepare(job_information())).work.is_dir()


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "", "..", "a/b", "x#../y", "a\0b"])
async def test_names_that_lead_out_are_refused(box: Box, name: str) -> None:
    with pytest.raises(InvalidInputError, match="no plain file name"):
        await box.directories.prepare(job_information(files=(inline(name, b"x"),)))


async def test_two_files_of_one_name_are_refused(box: Box) -> None:
    with pytest.raises(InvalidInputError, match=r"two files named a\.txt"):
        await box.directories.prepare(job_information(files=(inline("a.txt", b"1"), inline("a.txt", b"2"))))


async def test_no_name_is_that_of_a_draft(box: Box) -> None:
    files = (box.blobs.put(".a.building", b"draft"), box.blobs.put("a", b"whole"))
    work = (await box.directories.prepare(job_information(files=files))).work
    assert {path.name: path.read_bytes() for path in work.iterdir()} == {".a.building": b"draft", "a": b"whole"}


async def test_inline_content_has_to_match_its_digest(box: Box) -> None:
    with pytest.raises(InvalidInputError, match="digest"):
        await box.directories.prepare(job_information(files=(replace(inline("a", b"1"), inline=b"2"),)))


async def test_user_code_cannot_change_the_cache(box: Box) -> None:
    blob = box.blobs.put("a", b"original")
    directory = await box.directories.prepare(job_information(files=(blob,)))
    (directory.work / "a").write_text("changed")
    assert (box.blobs.cache / blob.key).read_bytes() == b"original"


async def test_code_blobs_are_fetched_once_and_found_by_digest(box: Box) -> None:
    code = box.blobs.put("job.pkl", b"code")
    task = TaskInformation(VERTEX, "v", b"[]", (code,), 1, is_exclusive=True)
    await box.directories.prepare(job_information())
    first = await box.directories.code_files(job_id(1), task)
    second = await box.directories.code_files(job_id(1), task)
    assert first == second
    assert first[code.sha256].name == "job.pkl"
    assert first[code.sha256].read_bytes() == b"code"
    assert len(box.blobs.asked) == 1
    await box.directories.delete(job_id(1))
    assert not list(box.root.iterdir())


async def test_deleting_waits_for_an_abandoned_preparation(box: Box) -> None:
    job = job_information(files=(box.blobs.put("a", b"a"),))
    box.blobs.release.clear()
    async with asyncio.TaskGroup() as tasks:
        preparing = tasks.create_task(box.directories.prepare(job))
        await asyncio.sleep(0)
        preparing.cancel()
        await asyncio.wait([preparing])
        deleting = tasks.create_task(box.directories.delete(job_id(1)))
        await asyncio.sleep(0)
        assert not deleting.done()
        box.blobs.release.set()
    assert not list(box.root.iterdir())


async def test_a_job_whose_archive_is_refused_leaves_nothing(box: Box, tmp_path: Path) -> None:
    bomb = hostile.large_header(tmp_path / "x.tar.gz", mebibytes=4).read_bytes()
    job = job_information(files=(inline("small.txt", b"s"),), archives=(box.blobs.put("x.tar.gz", bomb),))
    with pytest.raises(InvalidInputError, match=r"archive x\.tar\.gz has a header of 4194304 bytes"):
        await box.directories.prepare(job)
    assert not list(box.root.iterdir())


async def test_what_a_killed_process_has_unpacked_is_not_believed(box: Box) -> None:
    """R42: wherever it is killed, the next attempt begins with nothing."""
    whole, waits = box.blobs.put("whole.zip", zipped(a="1")), box.blobs.put("x.zip", zipped(b="2"))
    good = (box.blobs.cache / waits.key).read_bytes()
    (box.blobs.cache / waits.key).unlink()
    os.mkfifo(box.blobs.cache / waits.key)
    job = job_information(archives=(whole, waits))
    preparing = asyncio.ensure_future(box.directories.prepare(job))
    while not (found := [pid for pid in children_of(os.getpid()) if name_of(pid) == "unpack"]):
        await asyncio.sleep(0.01)
    # It opens this one when the first one is unpacked, and waits for the end of the second one.
    with await asyncio.to_thread((box.blobs.cache / waits.key).open, "wb"):
        assert (box.root / f"{job_id(1)}.building/work/whole.zip/a").read_text() == "1"
        os.kill(found[0], signal.SIGKILL)
        with pytest.raises(UnavailableError, match="was ended by signal 9"):
            await preparing
    assert not list(box.root.iterdir())
    (box.blobs.cache / waits.key).unlink()
    (box.blobs.cache / waits.key).write_bytes(good)
    directory = await box.directories.prepare(job)
    assert sorted(path.name for path in directory.work.iterdir()) == ["whole.zip", "x.zip"]


async def test_a_job_without_archives_starts_no_process(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        pytest.fail("a process was started")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    files = (inline("small.txt", b"s"),)
    await box.directories.prepare(job_information(files=files, py_files=(inline("lib.zip", zipped(m="")),)))


async def test_jars_lie_by_content_as_long_as_a_job_or_an_environment_has_them(box: Box) -> None:
    shared, own = box.blobs.put("lib.jar", b"shared"), inline("own.jar", b"own")
    one = await box.directories.prepare(job_information(1, jars=(shared, own)))
    two = await box.directories.prepare(job_information(2, jars=(shared,)))
    root = box.root.with_name("jars")
    assert one.jars == (root / shared.sha256 / "lib.jar", root / own.sha256 / "own.jar")
    assert two.jars == one.jars[:1]
    assert [path.read_bytes() for path in one.jars] == [b"shared", b"own"]
    assert box.blobs.asked == [shared.key]
    await box.directories.delete_jars(job_id(1), {own.sha256})
    assert [path.exists() for path in one.jars] == [True, True]
    await box.directories.delete_jars(job_id(2), ())
    assert not list(root.iterdir())


async def test_a_jar_with_a_name_that_leads_elsewhere_is_refused(box: Box) -> None:
    with pytest.raises(InvalidInputError, match="no plain file name"):
        await box.directories.prepare(job_information(jars=(inline("../lib.jar", b"x"),)))


async def test_what_a_url_names_is_left_to_the_slot_process(box: Box) -> None:
    def at(url: str, name: str) -> BlobReference:
        return BlobReference("", hashlib.sha256(url.encode()).hexdigest(), 0, name, url=url)

    job = job_information(
        files=(inline("here.txt", b"1"), at("s3://b/a.csv", "a.csv#b.csv")),
        archives=(at("hdfs://n/env.zip", "env.zip#env"),),
        py_files=(at("http://h/lib.zip", "lib.zip"), at("local:///opt/one.py", "one.py")),
    )
    found = await box.directories.prepare(job)
    assert [path.name for path in found.work.iterdir()] == ["here.txt"]
    assert [(file.url, file.path.removeprefix(f"{found.work}/"), file.is_archive) for file in found.remote] == [
        ("s3://b/a.csv", "b.csv", False),
        ("hdfs://n/env.zip", "env", True),
        ("http://h/lib.zip", "lib.zip", False),
        ("local:///opt/one.py", "one.py", False),
    ]
    assert found.python_path == (found.work / "lib.zip",)
    assert found.brought == ("here.txt", "b.csv", "env", "lib.zip", "one.py")
    assert not box.blobs.asked


async def test_a_fetched_file_takes_no_other_name(box: Box) -> None:
    url = BlobReference("", "0" * 64, 0, "a.csv", url="s3://b/a.csv")
    with pytest.raises(InvalidInputError, match=r"two files named a\.csv"):
        await box.directories.prepare(job_information(files=(inline("a.csv", b"1"), url)))


async def test_a_jar_that_goes_is_found_by_no_job_that_comes_meanwhile(box: Box) -> None:
    jars = (box.blobs.put("one.jar", b"1"), box.blobs.put("two.jar", b"2"))
    await box.directories.prepare(job_information(1, jars=jars))
    await box.directories.prepare(job_information(2, jars=jars))
    async with asyncio.TaskGroup() as group:
        _ = group.create_task(box.directories.delete_jars(job_id(1), ()))
        _ = group.create_task(box.directories.delete_jars(job_id(2), ()))
        preparing = group.create_task(box.directories.prepare(job_information(3, jars=jars)))
    assert [path.read_bytes() for path in preparing.result().jars] == [b"1", b"2"]
    await box.directories.delete_jars(job_id(3), ())
    assert not list(box.root.with_name("jars").iterdir())

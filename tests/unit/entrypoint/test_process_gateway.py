"""What a process tells of itself: masked options, bounded stacks, its own files."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from runtime.common.errors import NotFoundError
from runtime.entrypoint.process_gateway import OwnProcess, shown_options
from runtime.gateways.process import (
    DUMP_BYTES_MAX,
    LOG_BYTES_MAX,
    LogFileRequest,
    LogFilesRequest,
    ProcessEnvironmentRequest,
    ProcessFile,
    ThreadDumpRequest,
)

pytestmark = pytest.mark.asyncio

SECRET = "hunter2"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OwnProcess]:
    (tmp_path / "x.log").write_bytes(b"log\n" * LOG_BYTES_MAX)
    (tmp_path / "x.out").write_text("printed")
    made = OwnProcess.of({"FLINKLIKE_LOG_FILE": str(tmp_path / "x.log")})
    yield made
    made.close()


async def test_log_and_stdout_are_found_without_their_names(process: OwnProcess) -> None:
    log = await process.request_log_file(LogFileRequest(ProcessFile.LOG, "", 0, 8))
    out = await process.request_log_file(LogFileRequest(ProcessFile.STDOUT, "ignored", 0, 99))
    named = await process.request_log_file(LogFileRequest(ProcessFile.NAMED, "x.out", 0, 99))
    assert (log.data, log.next_offset) == (b"log\nlog\n", 8)
    assert (out.data, named.data) == (b"printed", b"printed")
    assert {one.name for one in (await process.request_log_files(LogFilesRequest())).files} == {"x.log", "x.out"}
    with pytest.raises(NotFoundError):
        await process.request_log_file(LogFileRequest(ProcessFile.NAMED, "../x.log", 0, 99))


async def test_a_piece_is_bounded_whatever_is_asked(process: OwnProcess) -> None:
    piece = await process.request_log_file(LogFileRequest(ProcessFile.LOG, "", 0, 1 << 60))
    assert len(piece.data) == LOG_BYTES_MAX


@pytest.mark.parametrize(
    "word",
    [
        f"security.ssl.key-password={SECRET}",
        f"spark.hadoop.fs.s3a.secret.key={SECRET}",
        f"security.delegation.token.provider.vault.anything={SECRET}",
        f"spark.driver.extraJavaOptions=-Djavax.net.ssl.trustStorePassword={SECRET}",
        f"high-availability.etcd.endpoints=http://me:{SECRET}@etcd:2379",
        f"--password={SECRET}",
        f"https://me:{SECRET}@host/x",
        f"password:{SECRET}",
    ],
)
async def test_no_secret_of_the_command_line_is_shown(word: str) -> None:
    told = " ".join(shown_options(["python", "-m", "x", "-D", word]))
    assert SECRET not in told
    assert "******" in told


async def test_plain_options_are_shown_without_what_steers_a_terminal() -> None:
    assert list(shown_options(["-D", "rest.port=8081", "spark.sql.x=a=b", "\x1b]0;x"])) == [
        "-D",
        "rest.port=8081",
        "spark.sql.x=a=b",
        "\\x1b]0;x",
    ]


async def test_the_environment_is_this_pythons(process: OwnProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-D", f"a.password={SECRET}"])
    told = await process.request_environment(ProcessEnvironmentRequest())
    assert told.version.startswith(f"Python {sys.version_info.major}.{sys.version_info.minor}.")
    assert told.options == ("python", "-D", "a.password=******")
    assert list(told.path) == sys.path
    assert told.arch


async def test_a_dump_has_threads_what_was_started_and_tasks() -> None:
    async def further() -> AsyncIterator[tuple[str, str]]:
        yield "slot 0\x1b", "user \u202e code\n"

    process = OwnProcess(None, further)
    names = [one.name for one in (await process.request_thread_dump(ThreadDumpRequest())).stacks]
    assert "MainThread" in names
    assert "slot 0\\x1b" in names
    text = next(one.text for one in process._dump[1].stacks if one.name.startswith("slot"))
    assert text == "user \\u202e code\n"


async def test_a_dump_is_bounded_and_says_what_it_leaves_out() -> None:
    async def further() -> AsyncIterator[tuple[str, str]]:
        for number in range(5000):
            yield f"slot {number}", "x" * 1000

    process = OwnProcess(None, further)
    stacks = (await process.request_thread_dump(ThreadDumpRequest())).stacks
    assert sum(len(one.name) + len(one.text) for one in stacks) <= DUMP_BYTES_MAX + 200
    shown = sum(one.name.startswith("slot") for one in stacks)
    assert stacks[-1].name == "left out"
    assert int(stacks[-1].text.split()[0]) >= 5000 - shown


async def test_those_who_wait_for_a_dump_share_the_next_one() -> None:
    """A flood of questions costs two dumps at a time, not one each."""
    made = 0
    gate = asyncio.Event()

    async def further() -> AsyncIterator[tuple[str, str]]:
        nonlocal made
        made += 1
        await gate.wait()
        yield "slot 0", f"dump {made}"

    process = OwnProcess(None, further)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(process.request_thread_dump(ThreadDumpRequest()))
        while not made:
            await asyncio.sleep(0)
        others = [group.create_task(process.request_thread_dump(ThreadDumpRequest())) for _ in range(50)]
        await asyncio.sleep(0)
        gate.set()
    assert made == 2
    assert len({id(one.result()) for one in others}) == 1
    assert first.result() is not others[0].result()
    await process.request_thread_dump(ThreadDumpRequest())
    assert made == 3, "an old dump is no answer"

"""A cluster's REST endpoint and a way to run commands against it."""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_flinklike.cli.__main__ import main
from runtime.common.states import JobStatus
from tests.kit.host.command_line import Done, RunCommand
from tests.kit.rest.server import TOKEN, ObedientDispatcher, RestThread

_numbers = itertools.count()


@pytest.fixture(scope="session")
def rest_thread() -> Iterator[RestThread]:
    with RestThread() as server:
        yield server


@pytest.fixture
def server(rest_thread: RestThread) -> RestThread:
    """The endpoint with fresh jobs."""

    def forget() -> None:
        fresh = ObedientDispatcher()
        fresh.next_status = JobStatus.FINISHED
        rest_thread.dispatcher = rest_thread.fakes.dispatcher = fresh
        rest_thread.fakes.resource_manager.offers = ()

    rest_thread.do(forget)
    return rest_thread


@pytest.fixture
def flinklike(
    server: RestThread, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> RunCommand:
    """Run the command line in an empty directory, as the console script does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLINKLIKE_ADDRESS", server.address)
    monkeypatch.setenv("FLINKLIKE_TOKEN", TOKEN)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["flinklike", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0 if code is None else 1, out, err)

    return run


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a module into the working directory; its name, new each time."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text: str) -> str:
        name = f"cli_test_jobs_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write

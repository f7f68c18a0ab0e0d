"""The command line as a process: signals, terminals, what it imports, completion."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.common.states import JobStatus
from tests.kit.control_plane.job_graphs import diamond
from tests.kit.rest.fakes import JOB
from tests.kit.rest.server import TOKEN, RestThread

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "airflow_flinklike.cli"]
IN_FOREGROUND = """
import signal
from airflow_flinklike.cli.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
# A background process of a shell has SIGINT ignored; this one has it as a foreground process has.
PATIENCE = 30.0
HEAVY = {
    "airflow",
    "fastapi",
    "fsspec",
    "google.protobuf",
    "grpc",
    "numpy",
    "pandas",
    "py4j",
    "pyarrow",
    "pyspark",
    "starlette",
    "uvicorn",
}


@pytest.fixture
def environment(server: RestThread) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FLINKLIKE_ADDRESS": server.address,
        "FLINKLIKE_TOKEN": TOKEN,
        "COLUMNS": "120",
        "LINES": "50",
        "TERM": "xterm",
    }


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "graph.json"
    path.write_bytes(diamond().canonical_json())
    return str(path)


def wait_until(what: str, is_reached: object) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_reached():  # type: ignore[operator]  # a callable
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def polls(server: RestThread) -> int:
    return int(server.do(lambda: server.dispatcher.polls))


@contextmanager
def attached_run(
    server: RestThread, environment: dict[str, str], job_file: str, *more: str
) -> Iterator[subprocess.Popen[str]]:
    """An attached run that waits for the end of a running job."""
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.RUNNING))
    command = [sys.executable, "-c", IN_FOREGROUND, "run", "--job-id", JOB, *more, job_file]
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            wait_until("the command polls", lambda: polls(server) > 0 or process.poll() is not None)
            yield process
        finally:
            process.kill()


def test_ctrl_c_without_a_terminal_detaches(server: RestThread, environment: dict[str, str], job_file: str) -> None:
    with attached_run(server, environment, job_file) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, 2 * "hello from the task\n")
    assert f"Detached; the job goes on: flinklike status {JOB}" in err
    assert "Traceback" not in err
    assert not server.dispatcher.cancelled


def test_ctrl_c_without_a_terminal_is_json_too(server: RestThread, environment: dict[str, str], job_file: str) -> None:
    with attached_run(server, environment, job_file, "--json") as process:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    assert json.loads(out) == {"job_id": JOB, "detached": True}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_says_that_its_job_goes_on(
    server: RestThread, environment: dict[str, str], job_file: str, number: signal.Signals
) -> None:
    with attached_run(server, environment, job_file) as process:
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert f"Ended by {number.name}; the job goes on: flinklike cancel {JOB} ends it" in err
    assert f"--job-id {JOB}" in err
    assert "Traceback" not in err
    assert not server.dispatcher.cancelled


@pytest.mark.parametrize("more", [(), ("--json",), ("--quiet",)])
def test_who_is_not_signed_in_any_more_is_told_that_the_job_goes_on(
    server: RestThread, environment: dict[str, str], job_file: str, tmp_path: Path, more: tuple[str, ...]
) -> None:
    token = tmp_path / "token-of-somebody"
    token.write_text(TOKEN)
    token.chmod(0o600)
    environment = {**environment, "FLINKLIKE_TOKEN": "", "FLINKLIKE_TOKEN_FILE": str(token)}
    with attached_run(server, environment, job_file, *more) as process:
        token.write_text("revoked")
        server.put(JOB, JobStatus.RUNNING, modified=2000)  # the waiting command asks again
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "Traceback" in err) == (4, False), err
    assert f"Job {JOB} goes on in the cluster" in err
    assert f"`flinklike status {JOB}`" in err
    assert f"--job-id {JOB} watches it" in err
    assert f"shown was the token of {token}" in err
    assert not server.dispatcher.cancelled
    if "--json" in more:
        assert json.loads(out) == {"job_id": JOB, "detached": True}


def test_a_run_ends_with_its_job(server: RestThread, environment: dict[str, str], job_file: str) -> None:
    with attached_run(server, environment, job_file) as process:
        server.put(JOB, JobStatus.FAILED, 2000)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, 2 * "hello from the task\n")
    assert err.splitlines()[-1].endswith(": ValueError: no such column")


def test_a_reader_that_has_seen_enough_does_not_end_the_run(
    server: RestThread, environment: dict[str, str], job_file: str
) -> None:
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.FAILED))
    with subprocess.Popen(
        [*COMMAND, "run", job_file], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
        assert process.wait(PATIENCE) == 1
    assert err.splitlines()[-1].endswith(": ValueError: no such column")
    assert "BrokenPipe" not in err


@pytest.mark.parametrize(("full", "other"), [("stdout", "stderr"), ("stderr", "stdout")])
def test_a_disk_that_is_full_does_not_end_the_run(
    server: RestThread, environment: dict[str, str], job_file: str, full: str, other: str
) -> None:
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.FINISHED))
    with Path("/dev/full").open("wb") as nowhere:
        ended = subprocess.run(  # type: ignore[call-overload]
            [*COMMAND, "run", job_file],
            env=environment,
            text=True,
            timeout=PATIENCE,
            check=False,
            **{full: nowhere, other: subprocess.PIPE},
        )
    said = getattr(ended, other)
    assert ended.returncode == 0, said
    assert f"flinklike: {full} cannot be written (No space left on device)" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("option", ["--detached", "--quiet"])
def test_a_job_that_was_accepted_is_so_wherever_its_id_cannot_be_written(
    server: RestThread, environment: dict[str, str], job_file: str, option: str
) -> None:
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.FINISHED))
    with Path("/dev/full").open("wb") as nowhere:
        command = [*COMMAND, "run", option, job_file]
        ended = subprocess.run(command, env=environment, stdout=nowhere, stderr=nowhere, timeout=PATIENCE, check=False)
    assert ended.returncode == 0
    assert server.dispatcher.submitted


class Terminal:
    """A command on a pseudo terminal."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.screen = ""
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, environment)

    def read_until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen
            if select.select([self.descriptor], [], [], 0.1)[0]:
                self._read()

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def wait(self) -> int:
        while self._read():
            pass
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # the other end is closed
            return False
        self.screen += data.decode("utf-8", "replace")
        return bool(data)


@pytest.mark.parametrize(
    ("answer", "code", "says"), [("c", 130, "was CANCELED"), ("d", 0, "Detached; the job goes on")]
)
def test_ctrl_c_on_a_terminal_asks(
    server: RestThread, environment: dict[str, str], job_file: str, answer: str, code: int, says: str
) -> None:
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.RUNNING))
    terminal = Terminal([*COMMAND, "run", "--job-id", JOB, job_file], environment)
    terminal.read_until("hello from the task")
    terminal.read_until("write <b>")  # live progress: a line a vertex
    terminal.type("\x03")
    terminal.read_until("[w]atch on?")
    terminal.type(f"{answer}\n")
    assert terminal.wait() == code
    assert says in terminal.screen
    assert server.dispatcher.cancelled == ([JOB] if answer == "c" else [])


def test_help_imports_nothing_heavy(environment: dict[str, str]) -> None:
    program = (
        "import sys\n"
        "from airflow_flinklike.cli.__main__ import main\n"
        "sys.argv = ['flinklike', '--help']\n"
        "try:\n    main()\n"
        "finally:\n    print('\\n' + ' '.join(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, cwd="/"
    )
    modules = set(done.stdout.splitlines()[-1].split())
    assert not modules & HEAVY
    ours = {name for name in modules if name.startswith(("runtime.", "jobmaster_process"))}
    assert {name.split(".")[1] for name in ours} == {"common", "config", "jobgraph"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(environment: dict[str, str], shell: str) -> None:
    done = subprocess.run(
        [*COMMAND, "--show-completion", shell],
        env={**environment, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_FLINKLIKE_COMPLETE" in done.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


def test_completion_completes_commands(environment: dict[str, str]) -> None:
    asked = {"_FLINKLIKE_COMPLETE": "complete_bash", "COMP_WORDS": "flinklike ta", "COMP_CWORD": "1"}
    done = subprocess.run(COMMAND, env={**environment, **asked}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["taskmanagers"]

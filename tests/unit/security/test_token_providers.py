"""Providers of delegation tokens: files, commands, and what they may not do (R51)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from runtime.aio.clock import SystemClock
from runtime.common.errors import FlinklikeError, InvalidInputError
from runtime.config.token_provider_options import ProviderOptions, enabled_providers
from runtime.security.token_content import CONTENT_BYTES_MAX, read_tokens
from runtime.security.token_providers import CommandTokenProvider, FileTokenProvider, load_providers
from tests.kit.host.levels import reached

SECRET = "hush-hush"
CONTENT = {"values": {"token": SECRET}, "expires_at": "2030-01-31T12:00:00Z"}


def command(program: str, **options: str) -> CommandTokenProvider:
    return CommandTokenProvider({"command": f'{sys.executable} -c "{program}"', **options}, SystemClock())


@pytest.mark.parametrize("end", ["2030-01-31T12:00:00Z", "2030-01-31T13:00:00+01:00", 1896091200, 1896091200.0])
def test_ends_have_one_meaning(end: object) -> None:
    tokens = read_tokens(json.dumps({**CONTENT, "expires_at": end}).encode(), must_end=True)
    assert (tokens.values, tokens.valid_until_millis) == ({"token": SECRET}, 1896091200000)
    assert SECRET not in repr(tokens)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (SECRET, "not JSON"),
        (f'["{SECRET}"]', "not a JSON object"),
        ("[" * 50_000, "not JSON"),
        ({"values": {}}, "not an object of 1 to 100 texts"),
        ({"values": {"a": 5}, "expires_at": 5}, "a is not text"),
        ({"values": {f"{SECRET} ": "x"}, "expires_at": 5}, "the name of a value"),
        ({"values": {"a": SECRET}, "expires_at": "2030-01-31T12:00:00"}, "does not say its offset"),
        ({"values": {"a": SECRET}, "expires_at": SECRET}, "no time"),
        ({"values": {"a": SECRET}, "expires_at": 1e300}, "no time"),
        ({"values": {"a": SECRET}, "expires_at": True}, "no time"),
        ('{"values": {"a": "x"}, "expires_at": NaN}', "no time"),
        ({"values": {"a": SECRET}}, "no expires_at"),
        ({"values": {"a": SECRET}, SECRET: 1}, "1 other fields"),
        ({"values": {"a": SECRET * CONTENT_BYTES_MAX}}, "more than 65536 bytes"),
    ],
)
def test_what_cannot_be_used_is_told_without_its_values(content: object, words: str) -> None:
    data = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(InvalidInputError, match=words) as told:
        read_tokens(data.encode(), must_end=True)
    assert SECRET not in str(told.value)
    assert told.value.__cause__ is None


def test_a_file_is_read_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    provider = FileTokenProvider({"path": str(path)}, SystemClock())
    missing = provider.state()
    with pytest.raises(InvalidInputError, match="No such file"):
        provider.obtain()
    path.write_text(json.dumps(CONTENT))
    path.chmod(0o600)
    first = provider.state()
    assert first != missing
    assert provider.obtain().values == {"token": SECRET}
    path.chmod(0o644)
    with pytest.raises(InvalidInputError, match="can be read by others"):
        provider.obtain()
    replacement = tmp_path / "new"
    replacement.touch(0o600)
    replacement.write_text(json.dumps({"values": {"token": "next"}}))
    replacement.replace(path)
    assert provider.state() != first
    assert (provider.obtain().values, provider.obtain().valid_until_millis) == ({"token": "next"}, 0)


def test_a_command_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLINKLIKE__SOME__PASSWORD", SECRET)
    monkeypatch.setenv("VAULT_ADDR", "here")
    program = (
        "import json,os;"
        "print(json.dumps({'values': {'names': ' '.join(sorted(os.environ)), 'cwd': os.getcwd()}, 'expires_at': 9e9}))"
    )
    values = command(program, environment="VAULT_ADDR").obtain().values
    names = set(values["names"].split())
    assert "VAULT_ADDR" in names
    assert not [name for name in names if name.startswith("FLINKLIKE") or "PASSWORD" in name]
    assert values["cwd"] == "/"


def test_what_a_command_says_beside_them_is_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    """It could be the tokens, and what this process prints is a file of its own."""
    program = (
        f"import json, sys; print({SECRET!r}, file=sys.stderr);"
        "print(json.dumps({'values': {'a': 'b'}, 'expires_at': 9e9}))"
    )
    assert command(program).obtain().values == {"a": "b"}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (f"import sys; sys.exit('{SECRET}')", "ended with code 1: run it by hand"),
        (f"print('{SECRET}')", "not JSON"),
        (f"while True: print('{SECRET}' * 1000)", "writes more than 65536 bytes"),
        ("import time; time.sleep(600)", r"has not ended within 0\.5 s"),
        ("import os,time; os.close(1); time.sleep(600)", r"has not ended within 0\.5 s"),
    ],
)
def test_a_command_that_misbehaves_is_ended_and_told(program: str, words: str) -> None:
    timeout = {"timeout": "500 ms"} if "sleep" in program else {}
    with pytest.raises(FlinklikeError, match=words) as told:
        command(program, **timeout).obtain()
    assert SECRET not in str(told.value)
    alive = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
    assert not [one for one in alive if "600" in " ".join(one.cmdline())]


def test_what_a_command_has_started_ends_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = (
        "import subprocess,time; p = subprocess.Popen(['/bin/sleep', '600']);"
        f"open('{pid_file}', 'w').write(str(p.pid)); time.sleep(600)"
    )
    with pytest.raises(FlinklikeError, match="has not ended within 5 s"):
        command(child, timeout="5 s").obtain()
    pid = int(pid_file.read_text())
    reached(lambda: has_ended(pid), "the child ends")


def test_what_a_command_leaves_behind_ends_too(tmp_path: Path) -> None:
    """Also where it has ended by itself, with tokens that can be used."""
    pid_file = tmp_path / "pid"
    program = (
        "import json,subprocess; p = subprocess.Popen(['/bin/sleep', '600'], stdout=subprocess.DEVNULL);"
        f"open('{pid_file}', 'w').write(str(p.pid)); print(json.dumps({{'values': {{'a': 'x'}}, 'expires_at': 9e9}}))"
    )
    assert command(program).obtain().values == {"a": "x"}
    pid = int(pid_file.read_text())
    reached(lambda: has_ended(pid), "what it has left behind ends")


def test_a_command_has_its_time_once() -> None:
    """The wait for the end of the process has only the rest of the time."""
    clock = ReadClock(0.0, 0.0, 100.0)
    program = f"{sys.executable} -c 'import os,time; os.close(1); time.sleep(10)'"
    with pytest.raises(FlinklikeError, match="has not ended within 100 s"):
        CommandTokenProvider({"command": program, "timeout": "100 s"}, clock).obtain()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a program that becomes root's")
def test_a_command_that_has_become_somebody_elses_is_told() -> None:
    """This process may not kill it, and does not wait for it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        program = shutil.copy("/usr/bin/setpriv", folder)
        Path(folder).chmod(0o755)
        Path(program).chmod(0o4755)
        sleeps = f"{program} --reuid 0 --clear-groups --regid 0 /bin/sleep 20"
        done = subprocess.run(
            [sys.executable, "-c", _OBTAIN, sleeps], capture_output=True, text=True, check=False, timeout=60
        )
    if "has not ended within 5 s (timeout)" in done.stdout:
        pytest.skip("set-user-id programs are plain ones here")
    assert "cannot be ended, it is another user's" in done.stdout, done.stderr


_OBTAIN = """
import os, sys
from runtime.aio.clock import SystemClock
from runtime.common.errors import FlinklikeError
from runtime.security.token_providers import CommandTokenProvider
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
try:
    CommandTokenProvider({"command": sys.argv[1], "timeout": "5 s"}, SystemClock()).obtain()
except FlinklikeError as error:
    print(error)
"""


class ReadClock:
    """A `Clock` that says one time after the other, then always the last one."""

    def __init__(self, *times: float) -> None:
        self._times = list(times)

    def monotonic(self) -> float:
        return self._times.pop(0) if len(self._times) > 1 else self._times[0]

    def epoch_millis(self) -> int:
        return int(self.monotonic() * 1000)


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FileTokenProvider({"path": "relative"}, SystemClock()), "path has to name a file"),
        (lambda: FileTokenProvider({"path": "/x", "paht": "/y"}, SystemClock()), "paht means nothing here"),
        (lambda: CommandTokenProvider({"command": "vault read"}, SystemClock()), "a program's path, from /"),
        (lambda: CommandTokenProvider({"command": "/bin/x 'open"}, SystemClock()), "No closing quotation"),
        (lambda: CommandTokenProvider({"command": "/bin/x", "timeout": "2 min"}, SystemClock()), "at most 100 s"),
        (
            lambda: CommandTokenProvider({"command": "/bin/x", "environment": "FLINKLIKE__A"}, SystemClock()),
            "none of FLINKLIKE",
        ),
        (
            lambda: CommandTokenProvider({"command": "/bin/x", "environment": "VAULT_*"}, SystemClock()),
            "name each variable",
        ),
    ],
)
def test_options_that_mean_nothing_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()


def test_a_provider_exists_when_something_is_said_of_it() -> None:
    prefix = "security.delegation.token.provider."
    found = enabled_providers(
        {
            f"{prefix}file.path": "/a",
            f"{prefix}s3.type": "command",
            f"{prefix}off.path": "/b",
            f"{prefix}off.enabled": "false",
        }
    )
    assert {name: (one.kind, dict(one.own)) for name, one in found.items()} == {
        "file": ("file", {"path": "/a"}),
        "s3": ("command", {}),
    }


def test_an_unknown_type_is_told_with_those_that_there_are() -> None:
    with pytest.raises(
        InvalidInputError, match=r"provider\.s3\.\*: there is no provider of the type s3: .*command, file"
    ):
        load_providers({"s3": ProviderOptions("s3", "s3", {})}, SystemClock())


def test_a_command_that_ends_quickly_takes_no_longer() -> None:
    began = time.monotonic()
    with pytest.raises(FlinklikeError):
        CommandTokenProvider({"command": "/bin/false", "timeout": "100 s"}, SystemClock()).obtain()
    assert time.monotonic() - began < 600

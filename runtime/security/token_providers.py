"""The providers of delegation tokens (R51): `file` and `command`, and those of installed packages."""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.common.watched import file_state
from runtime.config.option import parse_duration, parse_variables
from runtime.config.token_provider_options import ProviderOptions
from runtime.gateways.delegation_tokens import DelegationTokenProvider, DelegationTokenReceiver, ObtainedTokens
from runtime.security.private_files import read_private
from runtime.security.token_content import CONTENT_BYTES_MAX, read_tokens

PROVIDER_GROUP = "airflow_flinklike.delegation_token_providers"
RECEIVER_GROUP = "airflow_flinklike.delegation_token_receivers"

_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that a command gets. The others may hold the cluster's passwords."""

_TIMEOUT = "30 s"
_SECONDS_MAX = 100.0
"""Less than `delegation_tokens.ANSWER_SECONDS_MAX`, for which the caller waits for any provider."""
_KILLED_SECONDS = 5.0
_PIECE = 1 << 14


class FileTokenProvider:
    """A file of mode 0600 that another program replaces: it is read when it changes."""

    def __init__(self, options: Mapping[str, str], clock: Clock) -> None:
        del clock
        _refuse_unknown(options, "path")
        path = options.get("path", "")
        if not path.startswith("/"):
            message = "path has to name a file, from /"
            raise InvalidInputError(message)
        self._path = Path(path)

    def obtain(self) -> ObtainedTokens:
        """The present content. Raises InvalidInputError."""
        data = read_private(self._path, "delegation token", size_max=CONTENT_BYTES_MAX)
        try:
            return read_tokens(data, must_end=False)
        except InvalidInputError as error:
            message = f"{self._path}: {error}"
            raise InvalidInputError(message) from None

    def state(self) -> object:
        """Identity and times of the file, which differ after a replacement."""
        return file_state(self._path)


class CommandTokenProvider:
    """A command whose output is the tokens. No shell, little of the environment, bounded in time and bytes."""

    def __init__(self, options: Mapping[str, str], clock: Clock) -> None:
        _refuse_unknown(options, "command", "timeout", "environment")
        self._clock = clock
        try:
            self._command = shlex.split(options.get("command", ""))
            self._seconds = parse_duration(options.get("timeout", _TIMEOUT)).total_seconds()
            further = parse_variables(options.get("environment", ""))
        except ValueError as error:
            raise InvalidInputError(str(error)) from error
        if not self._command or not self._command[0].startswith("/"):
            message = "command has to begin with a program's path, from /"
            raise InvalidInputError(message)
        if not 0 < self._seconds <= _SECONDS_MAX:
            message = f"timeout has to be at most {_SECONDS_MAX:g} s"
            raise InvalidInputError(message)
        if some := next((name for name in further if name.endswith("*")), ""):
            message = f"environment: name each variable, {some} is the beginning of names"
            raise InvalidInputError(message)
        self._environment = {name: os.environ[name] for name in (*_PASSED, *further) if name in os.environ}

    def obtain(self) -> ObtainedTokens:
        """Run the command once. Its stderr is discarded, as it could hold tokens."""
        until = self._clock.monotonic() + self._seconds
        process = self._start()
        try:
            data = self._read(process, until)
            self._wait_ended(process, until)
        except TimeoutError:
            raise self._error(f"has not ended within {self._seconds:g} s (timeout)") from None
        finally:
            code = self._end(process)
        if code != 0:
            raise self._error(f"ended with code {code}: run it by hand to see what it says")
        return read_tokens(data, must_end=True)

    def state(self) -> object:
        """Always None: only time says when to run the command again."""
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise self._error(f"cannot be started: {error.strerror}") from error

    def _read(self, process: subprocess.Popen[bytes], until: float) -> bytes:
        assert process.stdout is not None
        data = bytearray()
        while True:
            self._wait_readable(process.stdout.fileno(), until)
            piece = os.read(process.stdout.fileno(), _PIECE)
            if not piece:
                return bytes(data)
            data += piece
            if len(data) > CONTENT_BYTES_MAX:
                raise self._error(f"writes more than {CONTENT_BYTES_MAX} bytes")

    def _wait_ended(self, process: subprocess.Popen[bytes], until: float) -> None:
        """Wait for the end without reaping: until then the id of its process group is not reused."""
        descriptor = os.pidfd_open(process.pid)
        try:
            self._wait_readable(descriptor, until)
        finally:
            os.close(descriptor)

    def _wait_readable(self, descriptor: int, until: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            left = until - self._clock.monotonic()
            if left <= 0 or not selector.select(left):
                raise TimeoutError

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        """Kill the rest of its process group, and reap it. Returns its exit code."""
        assert process.stdout is not None
        process.stdout.close()
        try:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait(_KILLED_SECONDS)
        except (PermissionError, subprocess.TimeoutExpired) as error:
            if process.poll() is not None:
                return process.returncode
            raise self._error(f"cannot be ended, it is another user's or stuck: end {process.pid} by hand") from error

    def _error(self, what: str) -> UnavailableError:
        return UnavailableError(f"{self._command[0]} {what}")


def _refuse_unknown(options: Mapping[str, str], *known: str) -> None:
    if unknown := sorted(set(options) - set(known)):
        message = f"{', '.join(unknown)} means nothing here: known are {', '.join(known)}"
        raise InvalidInputError(message)


_SHIPPED: Mapping[str, Callable[[Mapping[str, str], Clock], DelegationTokenProvider]] = {
    "file": FileTokenProvider,
    "command": CommandTokenProvider,
}


def load_providers(configured: Mapping[str, ProviderOptions], clock: Clock) -> Mapping[str, DelegationTokenProvider]:
    """The enabled providers by name. Raises InvalidInputError that names the option to change."""
    made: dict[str, DelegationTokenProvider] = {}
    for name, options in configured.items():
        try:
            made[name] = _make(options, clock)
        except InvalidInputError as error:
            message = f"{options.prefix}*: {error}"
            raise InvalidInputError(message) from error
    return made


def _make(options: ProviderOptions, clock: Clock) -> DelegationTokenProvider:
    shipped = _SHIPPED.get(options.kind)
    if shipped is not None:
        return shipped(options.own, clock)
    found = _installed(PROVIDER_GROUP, tuple(sys.path))
    if options.kind not in found:
        known = ", ".join(sorted({*found, *_SHIPPED}))
        message = f"there is no provider of the type {options.kind}: known are {known}"
        raise InvalidInputError(message)
    make: Callable[[Mapping[str, str]], Any] = found[options.kind].load()
    provider: DelegationTokenProvider = make(options.own)
    return provider


def load_receivers(configured: Mapping[str, ProviderOptions]) -> Mapping[str, DelegationTokenReceiver]:
    """The receivers that installed packages have for enabled providers, by name."""
    found = _installed(RECEIVER_GROUP, tuple(sys.path)) if configured else {}
    return {
        name: found[options.kind].load()(options.own) for name, options in configured.items() if options.kind in found
    }


@cache
def _installed(group: str, _path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Entry points of a group by name. Cached, because the look-up opens a file of every installed package."""
    return {one.name: one for one in entry_points(group=group)}

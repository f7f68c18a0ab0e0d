"""RemoteHosts: runs the scripts of bin/ on other hosts by ssh, side by side.

The commands go through standard input, so that no process list shows a password in FLINKLIKE__*. The run directory
records the hosts on which processes were started: a stop needs no valid file in conf/.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from typing import IO, Any

from runtime.common.json_text import parse_json
from runtime.common.printable import printable
from runtime.config.layout import Layout
from runtime.config.loading import ENVIRONMENT_PREFIX
from runtime.config.option import is_host
from runtime.entrypoint.control.daemon import (
    HISTORYSERVER,
    JOBMANAGER,
    JOBMASTER,
    KINDS,
    TASKMANAGER,
    DaemonKind,
    Instance,
)
from runtime.entrypoint.control.pending import DaemonError

SCRIPTS = {
    JOBMANAGER: "jobmanager.sh",
    JOBMASTER: "start-jobmaster.sh",
    TASKMANAGER: "taskmanager.sh",
    HISTORYSERVER: "historyserver.sh",
}
_PASSED_ON = ("FLINKLIKE_RUN_DIR", "FLINKLIKE_CONF_DIR", "FLINKLIKE_IDENT_STRING")
_OUTPUT_MAX = 1024 * 1024
"""Bytes of a host's output that are read: what it says beyond is of no command of ours."""
# After the user's own options: ssh takes the first value of each option.
_SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """One command that runs on another host (`Pending`)."""

    host: str
    kind: DaemonKind
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    errors: IO[bytes]

    @property
    def name(self) -> str:
        """Kind and host, for messages."""
        return f"{self.kind.name} on {self.host}"

    def is_done(self) -> bool:
        """True when the command has succeeded. Raises DaemonError with its output when it has failed."""
        code = self.process.poll()
        if code:
            said = _text(self.errors) or _text(self.out) or f"ssh ended with exit code {code}"
            message = f"{self.name}: {said}"
            raise DaemonError(message)
        return code == 0

    def instances(self) -> list[Instance]:
        """The processes that `ensure` has printed. Other output of a login shell is skipped."""
        lines = [line for line in _text(self.out).splitlines() if line.startswith("{")]
        return [found for line in lines if (found := _instance(line)) is not None]

    def said(self) -> str:
        """Its standard output, with a line end."""
        text = _text(self.out)
        return f"{text}\n" if text else ""

    def give_up(self) -> None:
        """Wait no longer."""
        self.process.kill()
        self.process.wait()


def _instance(line: str) -> Instance | None:
    try:
        said = parse_json(line)
        return Instance(
            str(said["process"]), str(said["host"]), int(said["pid"]), str(said["address"]), str(said["state"])
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def show(instances: Iterable[Instance]) -> str:
    """The lines of JSON that `RemoteCall.instances` reads."""
    return "".join(json.dumps(asdict(one)) + "\n" for one in instances)


class RemoteHosts:
    """The other hosts of one cluster. Without `ssh_options` it uses those of the last start."""

    def __init__(
        self, layout: Layout, environment: Mapping[str, str], ssh_options: Sequence[str] | None = None
    ) -> None:
        self._layout = layout
        self._environment = environment
        self.record = layout.run / "remote.json"
        """Which hosts a stop asks, until each has answered."""
        self._options = [str(one) for one in self._read("ssh-options")] if ssh_options is None else list(ssh_options)

    def known(self) -> set[tuple[str, DaemonKind]]:
        """The hosts, and kinds of processes, that may run."""
        pairs = [(str(one[0]), str(one[1])) for one in self._read("hosts") if isinstance(one, list) and len(one) == 2]
        return {(host, KINDS[name]) for host, name in pairs if name in KINDS and is_host(host)}  # R41, R52

    def remember(self, asked: Iterable[tuple[str, DaemonKind]]) -> None:
        """Record that these kinds may run on these hosts."""
        self._write(self.known() | set(asked))

    def forget(self, host: str, kind: DaemonKind) -> None:
        """Record that no process of this kind runs there any more."""
        self._write(self.known() - {(host, kind)})

    def call(self, host: str, kind: DaemonKind, arguments: Sequence[str]) -> RemoteCall:
        """Begin a script of bin/ on another host. Raises DaemonError when this host has no ssh."""
        out, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (the call's, until it is read)
        with tempfile.TemporaryFile() as script:
            script.write(self.script(kind, arguments, reads=False))
            script.seek(0)
            try:
                process = subprocess.Popen(self.ssh(host), stdin=script, stdout=out, stderr=errors)
            except FileNotFoundError:
                message = f"{kind.name} on {host}: there is no ssh on this host"
                raise DaemonError(message) from None
        return RemoteCall(host, kind, process, out, errors)

    def ssh(self, host: str) -> list[str]:
        """The command that runs on another host what comes through its standard input."""
        return ["ssh", *self._options, *_SSH_OPTIONS, "--", host, "/bin/bash -l -s"]

    def script(self, kind: DaemonKind, arguments: Sequence[str], *, reads: bool) -> bytes:
        """What comes: a script of bin/, with the variables of this cluster. `reads`: it reads what comes after it."""
        command = shlex.join([str(self._layout.home / "bin" / SCRIPTS[kind]), *arguments])
        passed_on = {**self._environment, **self._layout.environment()}
        exports = [
            f"export {name}={shlex.quote(value)}\n"
            for name, value in sorted(passed_on.items())
            if name.startswith(ENVIRONMENT_PREFIX) or (name in _PASSED_ON and name in self._environment)
        ]
        return "".join([*exports, f"exec {command}{'' if reads else ' < /dev/null'}\n"]).encode()

    def _read(self, key: str) -> list[Any]:
        try:
            found = parse_json(self.record.read_bytes())
        except (OSError, ValueError):
            return []
        listed = found.get(key) if isinstance(found, dict) else None
        return listed if isinstance(listed, list) else []

    def _write(self, known: AbstractSet[tuple[str, DaemonKind]]) -> None:
        if not known:
            self.record.unlink(missing_ok=True)
            return
        hosts = sorted([host, kind.name] for host, kind in known)
        draft = self.record.with_suffix(".tmp")
        draft.write_text(json.dumps({"hosts": hosts, "ssh-options": self._options}), encoding="utf-8")
        draft.replace(self.record)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return printable(file.read(_OUTPUT_MAX).decode(errors="replace").strip())

"""Hosts that ssh reaches: a real sshd on an address of the loopback network for each.

A host has a run directory of its own, since all of them are this machine: what comes in is changed on its way to the
shell. A host may be cut off: no connection is accepted any more, and those that there are end; its processes run on.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.kit.cluster.script_cluster import free_port
from tests.kit.host.levels import reached
from tests.kit.host.process_tree import carrying

_CONFIG = """
ListenAddress {address}:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile {folder}/{address}.pid
StrictModes no
UsePAM no
PasswordAuthentication no
ForceCommand {folder}/{address}.sh
"""
_SHELL = """#!/bin/bash
echo "Welcome to {address}."
exec env -i PATH=/usr/bin:/bin HOME=/ /bin/bash -s < <(exec sed -u "s#{run}#{run}-{address}#g" 2> /dev/null)
"""
_PRIVILEGES = Path("/run/sshd")


def why_no_sshd() -> str:
    """Why there are no such hosts here; "" where there are."""
    if not shutil.which("ssh") or not shutil.which("sshd", path="/usr/sbin:/usr/bin"):
        return "no ssh and sshd is installed (openssh-client, openssh-server)"
    if os.getuid() == 0 and not _PRIVILEGES.is_dir():
        try:
            _PRIVILEGES.mkdir(mode=0o755)
        except OSError as error:
            return f"sshd needs {_PRIVILEGES}: {error.strerror}"
    return ""


class SshHosts:
    """The hosts in `with`, which serve at once. `run`: the run directory that each has under another name."""

    def __init__(self, folder: Path, run: Path, addresses: Sequence[str]) -> None:
        self._folder = folder
        self._run = run
        self._port = free_port()
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses = tuple(addresses)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / name)]
            subprocess.run(command, check=True)
        for address in self.addresses:
            names = {"address": address, "port": self._port, "folder": self._folder, "run": self._run}
            (self._folder / f"{address}.conf").write_text(_CONFIG.format(**names))
            shell = self._folder / f"{address}.sh"
            shell.write_text(_SHELL.format(**names))
            shell.chmod(0o755)
            self.connect(address)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for address in list(self._servers):
            self.cut_off(address)
        for address in self.addresses:
            self.kill_all(address)

    @property
    def options(self) -> str:
        """For `env.ssh.opts`."""
        return (
            f"-F /dev/null -p {self._port} -i {self._folder}/user_key -o IdentitiesOnly=yes "
            f"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        )

    def run_of(self, address: str) -> Path:
        """The run directory of a host."""
        return Path(f"{self._run}-{address}")

    def connect(self, address: str) -> None:
        """Let ssh reach a host."""
        command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(self._folder / f"{address}.conf")]
        log = (self._folder / f"{address}.log").open("ab")
        with log:
            self._servers[address] = subprocess.Popen(command, stdout=log, stderr=log)
        pid_file = self._folder / f"{address}.pid"
        reached(pid_file.exists, f"sshd of {address} listens")

    def cut_off(self, address: str) -> None:
        """Let ssh reach it no more. What runs there runs on."""
        server = self._servers.pop(address, None)
        if server is None:
            return
        for session in psutil.Process(server.pid).children():
            session.kill()
        server.kill()
        server.wait()
        (self._folder / f"{address}.pid").unlink(missing_ok=True)

    def processes(self, address: str) -> dict[int, str]:
        """What runs on a host, by pid."""
        return carrying("FLINKLIKE_RUN_DIR", str(self.run_of(address)))

    def kill_all(self, address: str) -> None:
        """Switch a host off."""
        while found := self.processes(address):
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

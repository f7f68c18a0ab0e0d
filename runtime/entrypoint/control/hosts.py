"""conf/masters, conf/workers and conf/JOB_MASTERS: one host a line, `#` comments; a line for each process of a host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runtime.common.errors import InvalidInputError
from runtime.config.option import is_host
from runtime.config.validate import LOCAL_HOSTS

_WITH_PORTS = "masters"


@dataclass(frozen=True, slots=True)
class Host:
    """One line: a host, and its REST port, which `masters` may name (0: the configured one)."""

    name: str
    port: int

    @property
    def is_local(self) -> bool:
        """True for this machine: no ssh."""
        return self.name in LOCAL_HOSTS


def read_hosts(path: Path) -> list[Host]:
    """The hosts of one file. Raises InvalidInputError that lists every bad line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        message = f"No {path.name} file. Please specify hosts in '{path}'."
        raise InvalidInputError(message) from None
    except UnicodeDecodeError as error:
        message = f"{path} is no text: it holds the byte {error.object[error.start]:#04x} at {error.start}"
        raise InvalidInputError(message) from error
    hosts: list[Host] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        name, _, port = text.rpartition("/")[2].partition(":")
        if not is_host(name):  # R41: it is an argument of ssh
            problems.append(f"{path}:{number}: {text[:200]!r} is not a host")
        elif port and path.name != _WITH_PORTS:
            problems.append(f"{path}:{number}: {text[:200]!r}: only hosts in conf/{_WITH_PORTS} have a port here")
        elif port and not (port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536):
            problems.append(f"{path}:{number}: {port[:20]!r} is not a port")
        else:
            hosts.append(Host(name, int(port or 0)))
    if problems:
        raise InvalidInputError("\n".join(problems), tuple(problems))
    return hosts


def hosts_of(path: Path) -> list[str]:
    """The hosts of a file that the driver ssh starts processes on. Raises InvalidInputError, for this machine too."""
    hosts = read_hosts(path)
    if problems := tuple(
        f"{path} names {one.name}: write the name by which JobManagers reach that host over ssh"
        for one in hosts
        if one.is_local
    ):
        raise InvalidInputError("\n".join(dict.fromkeys(problems)), problems)
    return [one.name for one in hosts]

"""Secrets of this TaskManager: one file each, as Docker and Kubernetes mount them.

A job names the secrets that it needs; their values are read here when a task is handed over, go to its slot process
over its socket, and are kept nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.common.errors import PermanentError

SECRET_BYTES_MAX = 1024 * 1024
_NAMES_MAX = 20


class SecretError(PermanentError):
    """A secret that a job asks for is not to be had on this TaskManager."""


@dataclass(frozen=True, slots=True)
class SecretFiles:
    """`directory` is "" where `taskmanager.secrets.directory` is not set."""

    directory: str
    task_manager_id: str

    def read(self, names: Sequence[str]) -> Mapping[str, str]:
        """The values by name, without the line's end that editors add. Blocking. Raises SecretError."""
        return {name: self._read(name) for name in names}

    def _read(self, name: str) -> str:
        if not self.directory:
            raise self._error(name, "that option is not set: start the TaskManagers with a directory of such files")
        path = Path(self.directory) / name
        try:
            with path.open("rb") as file:
                data = file.read(SECRET_BYTES_MAX + 1)
            if len(data) > SECRET_BYTES_MAX:
                raise self._error(name, f"{path} has more than {SECRET_BYTES_MAX} bytes")
            return data.decode().removesuffix("\n")
        except UnicodeDecodeError:
            raise self._error(name, f"{path} is not UTF-8 text") from None  # the error would quote the value
        except FileNotFoundError:
            why = f"there is no file {path}: put it there, or ask for one that is there ({self._names()})"
            raise self._error(name, why) from None
        except OSError as error:
            raise self._error(name, f"{path} cannot be read: {error.strerror}") from error

    def _names(self) -> str:
        """Names are no secrets: each job may ask for any."""
        try:
            found = sorted(path.name for path in Path(self.directory).iterdir() if path.is_file())
        except OSError as error:
            return f"{self.directory} cannot be read: {error.strerror}"
        return ", ".join(found[:_NAMES_MAX]) or "none is"

    def _error(self, name: str, why: str) -> SecretError:
        return SecretError(
            f"the job asks for the secret {name!r}, which TaskManager {self.task_manager_id} cannot give it "
            f"(taskmanager.secrets.directory): {why}"
        )

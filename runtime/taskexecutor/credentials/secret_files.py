"""Secrets of this TaskManager: one file each, as Docker and Kubernetes mount them.

A job names the secrets that it needs; their values are read here when a task is handed over, go to its slot process
over its socket, and are kept nowhere else. Those in the directory itself are for all; those in a directory there with
the name of a namespace are for jobs of that namespace, and come before those for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.common.errors import InvalidInputError, PermanentError
from runtime.common.namespaces import DEFAULT_NAMESPACE, check_namespace

SECRET_BYTES_MAX = 1024 * 1024
_NAMES_MAX = 20


class SecretError(PermanentError):
    """A secret that a job asks for is not to be had on this TaskManager."""


@dataclass(frozen=True, slots=True)
class SecretFiles:
    """`directory` is "" where `taskmanager.secrets.directory` is not set."""

    directory: str
    task_manager_id: str

    def read(self, names: Sequence[str], namespace: str = "") -> Mapping[str, str]:
        """The values by name, without the line's end that editors add. Blocking. Raises SecretError."""
        own = namespace or DEFAULT_NAMESPACE
        return {name: self._read(name, own) for name in names}

    def _read(self, name: str, namespace: str) -> str:
        if not self.directory:
            raise self._error(name, "that option is not set: start the TaskManagers with a directory of such files")
        path = Path(self.directory) / name
        try:
            if path.is_dir():
                raise self._error(name, f"a secret is a file: ask for one that is there ({self._names(namespace)})")
            own = Path(self.directory) / check_namespace(namespace) / name
            path = own if own.exists() else path
            with path.open("rb") as file:
                data = file.read(SECRET_BYTES_MAX + 1)
            if len(data) > SECRET_BYTES_MAX:
                raise self._error(name, f"{path} has more than {SECRET_BYTES_MAX} bytes")
            return data.decode().removesuffix("\n")
        except UnicodeDecodeError:
            raise self._error(name, f"{path} is not UTF-8 text") from None  # the error would quote the value
        except FileNotFoundError:
            own = Path(self.directory) / namespace / name
            why = (
                f"there is no file {own}, for this namespace alone, nor {path}, for all: put it there, or ask for one "
                f"that is there ({self._names(namespace)})"
            )
            raise self._error(name, why) from None
        except InvalidInputError as error:
            raise self._error(name, str(error)) from error
        except OSError as error:
            raise self._error(name, f"{path} cannot be read: {error.strerror}") from error

    def _names(self, namespace: str) -> str:
        """Names are no secrets: each job may ask for any of its namespace, and of those for all."""
        everybodys = Path(self.directory)
        own = everybodys / namespace
        try:
            listed = [*everybodys.iterdir(), *(own.iterdir() if own.is_dir() else ())]
            found = sorted({path.name for path in listed if path.is_file()})
        except OSError as error:
            return f"{self.directory} cannot be read: {error.strerror}"
        return ", ".join(found[:_NAMES_MAX]) or "none is"

    def _error(self, name: str, why: str) -> SecretError:
        return SecretError(
            f"the job asks for the secret {name!r}, which TaskManager {self.task_manager_id} cannot give it "
            f"(taskmanager.secrets.directory): {why}"
        )

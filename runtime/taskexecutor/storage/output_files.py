"""The storage below one base, as the commit of outputs uses it: local directories, and all that fsspec reaches.

Names are relative to the base. All operations block, and may be repeated (R28). `put` is the step in which a file
becomes visible: a rename where the storage has one, elsewhere a copy that is looked at before its source may go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.storage.core.output_plan import Identity, Present, Written
from runtime.taskexecutor.storage.directory_tree import local_path
from runtime.taskexecutor.storage.local_output_files import LocalOutputFiles
from runtime.taskexecutor.storage.remote_output_files import RemoteOutputFiles


class OutputFiles(Protocol):
    """One base. Raises OSError, RemoteFilesError, and InvalidInputError for what no repetition can mend."""

    @property
    def base(self) -> str:
        """The address of the base, as messages have it."""

    def hold(self) -> None:
        """Hold the directory to which the address leads now; the address may lead elsewhere later.

        Raises FileNotFoundError when there is none.
        """

    def release(self) -> None:
        """Let go of the directory: no thread works with it any more. Idempotent."""

    @property
    def elsewhere(self) -> str:
        """The address of the held directory, when the address in messages leads to another one by now; else ""."""

    def name(self, error: OSError, /) -> None:
        """Put the address that people know into an error of an operation."""

    @property
    def place(self) -> str:
        """The identity of the base's directory, the same for all its names."""

    @property
    def outer_places(self) -> Sequence[str]:
        """The places that the base lies in."""

    def written(self, directory: str, /) -> Mapping[str, Written]:
        """All files below a directory of an attempt, relative to it.

        Raises FileNotFoundError when there is none, InvalidInputError for a link that will lead nowhere.
        """

    def present(self) -> Present:
        """The content of the base, without hidden work of this and other jobs."""

    def names(self) -> list[str]:
        """The names at the top of the base."""

    def make_room(self, name: str, /) -> None:
        """Make a directory."""

    def put(
        self,
        source: str,
        target: str,
        size: int,
        /,
        *,
        may_replace: bool,
        is_fresh: bool,
        identity: Identity | None = None,
    ) -> None:
        """Make a file visible under its final name; the source may stay. Raises FileExistsError when the name is taken,
        and FileNotFoundError when there is no source, and the file of that name is not proved to be it.

        `may_replace`: the file may take the place of any other. `is_fresh`: no file had the name when the commit began.
        `identity`: of the source, as `written` had it.
        """

    def remove(self, name: str, /) -> None:
        """Delete a file. Idempotent."""

    def remove_tree(self, name: str, /) -> None:
        """Delete a directory with all below it, or a file. Idempotent."""

    def set_aside(self, name: str, aside: str, /, *, is_directory: bool) -> None:
        """Give an old file, or a directory of old files, another name, which no reader sees. Idempotent: when it is
        repeated, a file with the old name is new, and stays.
        """

    def read(self, name: str, /) -> bytes | None:
        """A small file; None when there is none."""

    def write(self, name: str, data: bytes, /) -> None:
        """Write a small file, to be durable and whole where the storage can do that."""


def output_files(base: str) -> OutputFiles:
    """The storage of a base. Raises InvalidInputError where this TaskManager cannot reach it."""
    local = local_path(base)
    return LocalOutputFiles(local) if local is not None else RemoteOutputFiles(base.rstrip("/"))


def within(base: str, directory: str) -> str:
    """A directory of an attempt, relative to its base. Raises InvalidInputError when it is not within."""
    spelled = (local_path(base) or base).rstrip("/")
    inner = (local_path(directory) or directory).rstrip("/")
    name = inner.removeprefix(f"{spelled}/")
    if name == inner or not name.startswith("."):
        message = f"{directory} is no hidden directory below {base}"
        raise InvalidInputError(message)
    return name

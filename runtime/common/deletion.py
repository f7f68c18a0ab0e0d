"""Deletion of directory trees that tasks have written, however deep they are and wherever their links lead (R29).

`shutil.rmtree` calls itself for each level and holds a descriptor for it: a job with a thousand nested directories
would end the process that deletes them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOVED = ".to-delete-"
_FAILURES_MAX = 100


def delete_tree(path: Path | str) -> Sequence[OSError]:
    """Delete a directory with all below it, as far as that is possible. Returns the errors, () when nothing is left.

    Follows no link. Takes two descriptors, however deep the tree is. Idempotent, blocking.
    """
    try:
        top = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return ()
    except OSError as error:
        return (error,)
    deletion = _Deletion(top)
    try:
        deletion.run()
    finally:
        os.close(top)
    try:
        os.rmdir(path)  # noqa: PTH106 - a path, or a name
    except FileNotFoundError:
        pass
    except OSError as error:
        deletion.failures.append(error)
    return tuple(deletion.failures)


class _Deletion:
    """Directories are moved up into the top one, and deleted from there: nothing is ever two levels deep."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._moved = 0
        self.failures: list[OSError] = []

    def run(self) -> None:
        waiting = self._emptied(self._top)
        while waiting:
            name = waiting.pop()
            try:
                directory = os.open(name, _DIRECTORY, dir_fd=self._top)
            except OSError as error:
                self._failed(error)
                continue
            try:
                waiting += [moved for inner in self._emptied(directory) if (moved := self._move_up(directory, inner))]
            finally:
                os.close(directory)
            self._try(os.rmdir, name, self._top)

    def _emptied(self, directory: int) -> list[str]:
        """Delete files and empty directories. Returns the names of the directories that are not empty."""
        try:
            with os.scandir(directory) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError as error:
            self._failed(error)
            return []
        left = []
        for name, is_directory in found:
            if not is_directory:
                self._try(os.unlink, name, directory)
                continue
            try:
                os.rmdir(name, dir_fd=directory)
            except OSError:  # it is not empty, or cannot be deleted: the next step finds out
                left.append(name)
        return left

    def _move_up(self, directory: int, name: str) -> str:
        """Move a directory into the top one. Returns its new name there, "" when it cannot be moved."""
        while True:
            self._moved += 1
            moved = f"{_MOVED}{self._moved}"
            try:
                os.rename(name, moved, src_dir_fd=directory, dst_dir_fd=self._top)
            except (FileExistsError, NotADirectoryError):
                continue  # a task has taken that name
            except OSError as error:
                if error.errno == errno.ENOTEMPTY:
                    continue
                self._failed(error)
                return ""
            return moved

    def _try(self, delete: Callable[..., None], name: str, directory: int) -> None:
        try:
            delete(name, dir_fd=directory)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) and len(self.failures) < _FAILURES_MAX:
            self.failures.append(error)

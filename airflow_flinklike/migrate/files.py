"""DAG files on disk: which there are below the given paths, their text, and their replacement as a whole."""

from __future__ import annotations

import fnmatch
import io
import os
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runtime.common.errors import InvalidInputError

FILE_BYTES_MAX = 2 << 20
FILES_MAX = 100_000
_IGNORE = ".airflowignore"


class UnreadableFileError(InvalidInputError):
    """A file cannot be read, is too large, is not text, or cannot be replaced."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was read."""

    path: Path
    content: bytes
    encoding: str

    @property
    def text(self) -> str:
        """Its text, with the line ends that it has."""
        return self.content.decode(self.encoding)

    def replace(self, text: str) -> None:
        """Put another text there, whole or not at all; the mode stays, and a link leads to the new text.

        Raises UnreadableFileError, also when the file was changed since it was read.
        """
        target = self.path.resolve()
        try:
            if target.read_bytes() != self.content:
                message = "it was changed in the meantime: run the command again"
                raise UnreadableFileError(message)
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    os.fchmod(file.fileno(), target.stat().st_mode & 0o7777)
                    file.write(text.encode(self.encoding))
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(target)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            message = f"it cannot be replaced: {error.strerror}"
            raise UnreadableFileError(message) from error


def read(path: Path) -> SourceFile:
    """Read a file. Raises UnreadableFileError."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            message = f"it is larger than {FILE_BYTES_MAX >> 20} MiB, and is not read"
            raise UnreadableFileError(message)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        found = SourceFile(path, content, encoding)
        found.text  # noqa: B018 - raises for bytes that are no text
    except OSError as error:
        message = f"it cannot be read: {error.strerror}"
        raise UnreadableFileError(message) from error
    except (SyntaxError, ValueError) as error:
        message = f"it is no text in its encoding: {error}"
        raise UnreadableFileError(message) from error
    return found


def python_files(paths: Iterable[Path]) -> list[Path]:
    """The files that are named, and .py files below directories, each once. Files of hidden directories are left out.

    Raises InvalidInputError for more than FILES_MAX. A path that does not exist is in the list: reading it fails.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        for file in _below(path) if path.is_dir() else [path]:
            found.setdefault(file.resolve(), file)
            if len(found) > FILES_MAX:
                message = f"there are more than {FILES_MAX} files: name the directories with DAG files"
                raise InvalidInputError(message)
    return list(found.values())


def _below(root: Path) -> Iterator[Path]:
    """Links are followed, each directory is entered once."""
    entered: set[tuple[int, int]] = set()
    ignored: dict[str, list[str]] = {}
    for directory, names, files in os.walk(root, followlinks=True):
        state = Path(directory).stat()
        if (state.st_dev, state.st_ino) in entered:
            names.clear()
            continue
        entered.add((state.st_dev, state.st_ino))
        ignored[directory] = _patterns(Path(directory) / _IGNORE)
        names[:] = sorted(
            name
            for name in names
            if not name.startswith(".") and name != "__pycache__" and not _is_ignored(root, directory, name, ignored)
        )
        for name in sorted(files):
            if name.endswith(".py") and not name.startswith(".") and not _is_ignored(root, directory, name, ignored):
                yield Path(directory) / name


def _patterns(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    except (OSError, ValueError) as error:
        message = f"{file} cannot be read: {error}"
        raise InvalidInputError(message) from error
    return [text for line in lines if (text := line.partition("#")[0].strip())]


def _is_ignored(root: Path, directory: str, name: str, ignored: dict[str, list[str]]) -> bool:
    """By globs of the .airflowignore files from the root down to the directory; the last one that fits decides."""
    path = Path(directory) / name
    verdict = False
    for base in [*reversed(Path(directory).relative_to(root).parents), Path(directory).relative_to(root)]:
        folder = root / base
        relative = path.relative_to(folder).as_posix()
        for pattern in ignored.get(str(folder), ()):
            glob = pattern.removeprefix("!").strip("/")
            if fnmatch.fnmatchcase(relative if "/" in glob else name, glob):
                verdict = not pattern.startswith("!")
    return verdict

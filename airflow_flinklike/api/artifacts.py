"""Artifacts: files and pickled code of a job. Small ones are inline in the JobGraph, large ones are uploaded."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from airflow_flinklike.exceptions import PipelineError, SourceMissingError
from runtime.jobgraph.graph import INLINE_BYTES_MAX, Artifact

CHUNK_BYTES = 1 << 20
FilePath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class BlobSource:
    """Content to upload: bytes in memory, or a file that the upload reads again."""

    name: str
    sha256: str
    size_bytes: int
    data: bytes = b""
    path: Path | None = None

    def chunks(self) -> Iterator[bytes]:
        """The content in chunks. Raises SourceMissingError for a file that is missing or was changed meanwhile."""
        if self.path is None:
            yield self.data
            return
        digest = hashlib.sha256()
        try:
            with self.path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
                    yield chunk
        except OSError as error:
            message = f"file {self.path} cannot be read any more: {error.strerror}"
            raise SourceMissingError(message) from error
        if digest.hexdigest() != self.sha256:
            message = f"file {self.path} was changed while the job was being submitted"
            raise SourceMissingError(message)


@dataclass(slots=True)
class ArtifactCollector:
    """Makes artifacts, and keeps by sha256 the content of those that must be uploaded."""

    sources: dict[str, BlobSource] = field(default_factory=dict)

    def of_bytes(self, name: str, data: bytes) -> Artifact:
        """An artifact from content in memory."""
        artifact = Artifact.of_bytes(name, data)
        if artifact.is_pending:
            self.sources[artifact.sha256] = BlobSource(name, artifact.sha256, len(data), data=data)
        return artifact

    def of_file(self, kind: str, given: FilePath, *, suffixes: tuple[str, ...] = ()) -> Artifact:
        """An artifact from a local file, or from a URL, which tasks fetch; archives and files may have an alias:
        `x.zip#alias`. Raises PipelineError.
        """
        text = os.fspath(given)
        if is_elsewhere(text) and kind not in _OF_THE_CLIENT:
            return _remote(kind, text, suffixes)
        location, alias = _split_alias(text) if kind in {"archive", "file"} else (text, "")
        path = local_path(kind, location)
        if suffixes and path.suffix not in suffixes and not path.name.endswith(suffixes):
            message = f"{kind} {text!r}: expected a file ending in {', '.join(suffixes)}"
            raise PipelineError(message)
        name = f"{path.name}#{alias}" if alias else path.name
        size = path.stat().st_size
        if size <= INLINE_BYTES_MAX:
            return self.of_bytes(name, path.read_bytes())
        digest, size = _digest(path)
        self.sources[digest] = BlobSource(name, digest, size, path=path)
        return Artifact(name=name, sha256=digest, size_bytes=size)

    def of_files(self, kind: str, given: Iterable[FilePath], *, suffixes: tuple[str, ...] = ()) -> tuple[Artifact, ...]:
        """Artifacts from files."""
        return tuple(self.of_file(kind, path, suffixes=suffixes) for path in listed(given))

    def of_jars(self, given: Iterable[FilePath]) -> tuple[tuple[Artifact, ...], tuple[str, ...]]:
        """Artifacts from jars of the client, and the URLs of others, which the job's Spark finds itself."""
        jars = [os.fspath(jar) for jar in listed(given)]
        elsewhere = tuple(jar for jar in jars if is_elsewhere(jar))
        return self.of_files("jar", [jar for jar in jars if jar not in elsewhere], suffixes=JAR_SUFFIXES), elsewhere


def _remote(kind: str, text: str, suffixes: tuple[str, ...]) -> Artifact:
    """A file that tasks fetch. Raises PipelineError."""
    url, alias = _split_alias(text) if kind in {"archive", "file"} else (text, "")
    try:
        parts = urlsplit(url)
        is_web, has_user, _ = parts.scheme in {"http", "https"}, parts.username is not None, parts.port
    except ValueError as error:
        message = f"{kind} {text!r} is no URL: {error}"
        raise PipelineError(message) from error
    if is_web and (has_user or not parts.hostname):
        message = f"{kind} {text.rpartition('@')[2]!r}: expected http(s)://host/path, without a user (use a signed URL)"
        raise PipelineError(message)
    name = file_name(url)
    if not name:
        message = f"{kind} {text!r} names no file"
        raise PipelineError(message)
    if suffixes and not name.endswith(suffixes):
        message = f"{kind} {text!r}: expected a file ending in {', '.join(suffixes)}"
        raise PipelineError(message)
    return Artifact.of_url(f"{name}#{alias}" if alias else name, url)


_OF_THE_CLIENT = frozenset({"wheel"})
"""Files that a TaskManager unpacks before a task runs."""


def listed(given: Iterable[FilePath]) -> list[FilePath]:
    """The files. A text is split at commas, and blanks around names do not count, as with spark-submit."""
    if isinstance(given, str):
        return [name for one in given.split(",") if (name := one.strip())]
    return list(given)


def is_elsewhere(location: str) -> bool:
    """True for a URL of another scheme than file: it names no file of the client."""
    scheme = _SCHEME.match(location)
    return scheme is not None and scheme.group(1).lower() != "file"


def file_name(location: FilePath) -> str:
    """The last name of a path, or of a URL without its query, which may sign it."""
    text = os.fspath(location)
    return unquote(urlsplit(text).path).rstrip("/").rpartition("/")[2] if is_elsewhere(text) else Path(text).name


_PATTERN = re.compile(r"[*?[]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
JAR_SUFFIXES = (".jar",)
PY_FILE_SUFFIXES = (".py", ".zip", ".egg", ".whl")
ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".jar")
WHEEL_SUFFIXES = (".whl",)


def _split_alias(text: str) -> tuple[str, str]:
    location, _, alias = text.partition("#")
    return location, alias


def local_path(kind: str, location: str) -> Path:
    """The local file of a path or file: URL. Raises PipelineError, SourceMissingError."""
    scheme, separator, rest = location.partition("://")
    if separator and scheme != "file":
        message = f"{kind} {location!r}: only local files can be sent along; read {scheme}:// inside the job"
        raise PipelineError(message)
    path = Path(rest if separator else location.removeprefix("file:")).expanduser()
    if path.is_dir():
        message = f"{kind} {location!r} is a directory: give a file, for instance a zip of it"
        raise PipelineError(message)
    if not path.is_file():
        if _PATTERN.search(location):
            message = f"{kind} {location!r}: patterns are not taken: name each file, or give an archive of them"
            raise PipelineError(message)
        message = f"{kind} {location!r} does not exist"
        raise SourceMissingError(message)
    return path


def _digest(path: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size

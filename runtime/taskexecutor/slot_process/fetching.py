"""Fetches files of a job that are named by a URL: with the rights, the network and the credentials of the job.

`local:` is a file of this host, `http(s):` is read as it is, other schemes by fsspec where it has them, and else by the
Hadoop of the job's Spark, with the job's own Hadoop conf. A file appears under its name when it is whole; tasks of a
job that fetch the same file at once do no harm.
"""

from __future__ import annotations

import errno
import http.client
import importlib
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.slot_process.causes import FileUnavailableError, RemoteFileError, UnusableCodeError
from runtime.taskexecutor.slot_protocol.wire import RemoteFile
from runtime.taskexecutor.spark_protocol.java_causes import java_chain
from runtime.taskexecutor.unpacking.archive import unpack
from runtime.taskexecutor.unpacking.limits import Budget, UnpackLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GetSpark = Callable[[], "SparkSession"]

_LOCAL = "local"
_HTTP = frozenset({"http", "https"})
_OF_HADOOP = frozenset({"hdfs", "viewfs", "webhdfs", "swebhdfs", "s3a", "s3n", "wasb", "wasbs", "abfss", "har", "o3fs"})
"""Schemes that are Hadoop's, whatever fsspec makes of their names."""
_TIMEOUT = 60.0
_PIECE = 1 << 20
_NOT_FOUND = frozenset({404, 410})
_JAVA_NOT_FOUND = frozenset({"java.io.FileNotFoundException", "java.nio.file.NoSuchFileException"})
_JAVA_NO_SCHEME = "org.apache.hadoop.fs.UnsupportedFileSystemException"
_REASON_LENGTH_MAX = 300


def fetch_all(files: Iterable[RemoteFile], spark: GetSpark) -> None:
    """Fetch what is not there yet. Raises RemoteFileError, and FileUnavailableError for what may be there later."""
    limits = Budget(UnpackLimits())
    for file in files:
        target = Path(file.path)
        if not os.path.lexists(target):
            if file.is_archive:
                _fetch_archive(file, target, limits, spark)
            else:
                fetch(file.url, target, spark)
    # An import may have looked for them meanwhile, and not found them.
    importlib.invalidate_caches()


def fetch(url: str, target: Path, spark: GetSpark) -> None:
    """Put the file at `url` to `target`. Raises RemoteFileError, FileUnavailableError."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() == _LOCAL:
        _link(Path("/" + rest.lstrip("/")), target)
        return
    building = target.with_name(f".{target.name}.{os.getpid()}.fetched")
    try:
        _copy(url, scheme.lower(), building, spark)
        building.rename(target)
    except OSError as error:
        raise _unavailable(url, error) from error
    finally:
        building.unlink(missing_ok=True)


def _fetch_archive(file: RemoteFile, target: Path, budget: Budget, spark: GetSpark) -> None:
    packed = target.with_name(f".{os.getpid()}.{_name_of(file.url)}")
    unpacked = target.with_name(f".{target.name}.{os.getpid()}.unpacked")
    try:
        fetch(file.url, packed, spark)
        unpack(packed, _name_of(file.url), unpacked, budget)
        unpacked.rename(target)
    except InvalidInputError as error:
        raise UnusableCodeError(str(error)) from error
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:  # another task of the job was faster
            raise
    finally:
        packed.unlink(missing_ok=True)
        shutil.rmtree(unpacked, ignore_errors=True)


def _name_of(url: str) -> str:
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path).rstrip("/").rpartition("/")[2]


def _link(path: Path, target: Path) -> None:
    if not path.is_file():
        message = f"local:{path} does not exist on this TaskManager's host, or is no file"
        raise RemoteFileError(message)
    try:
        target.symlink_to(path)
    except FileExistsError:
        return  # another task of the job was faster


def _copy(url: str, scheme: str, target: Path, spark: GetSpark) -> None:
    if scheme in _HTTP:
        _copy_http(url, target)
        return
    files = None if scheme in _OF_HADOOP else _fsspec_of(url)
    if files is None:
        _copy_hadoop(url, target, spark)
        return
    try:
        with files.open(url, "rb") as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, _PIECE)
    except FileNotFoundError as error:
        raise _not_found(url) from error
    except PermissionError as error:
        message = f"{shown(url)} cannot be read with the credentials of the job: {error}"
        raise RemoteFileError(message[:_REASON_LENGTH_MAX]) from error


def _copy_http(url: str, target: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, target.open("wb") as copy:  # noqa: S310 - http(s)
            shutil.copyfileobj(answer, copy, _PIECE)
            if answer.length:  # what lacks: a read of pieces does not tell
                raise http.client.IncompleteRead(b"", answer.length)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _NOT_FOUND:
            raise _not_found(url) from error
        message = f"{shown(url)} is answered with {error.code} {error.reason}"
        if error.code < 500:
            raise RemoteFileError(message) from error
        raise FileUnavailableError(message) from error
    except http.client.HTTPException as error:
        raise _unavailable(url, error) from error


def _fsspec_of(url: str) -> Any:
    """The file system of the URL; None where fsspec has none, or lacks a package for it."""
    import fsspec.core

    try:
        files, _ = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError):
        return None
    return files


def _copy_hadoop(url: str, target: Path, spark: GetSpark) -> None:
    session = spark()
    jvm: Any = session._jvm  # noqa: SLF001 - pyspark has no public way to Hadoop
    try:
        path = jvm.org.apache.hadoop.fs.Path(url)
        conf = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
        files = path.getFileSystem(conf)
        files.copyToLocalFile(False, path, jvm.org.apache.hadoop.fs.Path(target.as_uri()), True)  # noqa: FBT003 - Java's
    except Exception as error:
        causes = java_chain(error)
        if any(cause.class_name in _JAVA_NOT_FOUND for cause in causes):
            raise _not_found(url) from error
        if any(cause.class_name == _JAVA_NO_SCHEME for cause in causes):
            message = (
                f"{shown(url)}: neither fsspec nor Hadoop of this TaskManager reads {url.partition(':')[0]}: install "
                "the fsspec package for it there, or give the job a jar that reads it (spark.jars.packages)"
            )
            raise RemoteFileError(message) from error
        raise _unavailable(url, error) from error


def _not_found(url: str) -> RemoteFileError:
    return RemoteFileError(f"{shown(url)} does not exist, as seen from this TaskManager")


def _unavailable(url: str, error: Exception) -> FileUnavailableError:
    causes = java_chain(error)
    reason = causes[-1].message if causes else str(error)
    return FileUnavailableError(f"{shown(url)} cannot be fetched now: {reason[:_REASON_LENGTH_MAX]}")


def shown(url: str) -> str:
    """The URL without a password, and without a query, which may sign it."""
    scheme, _, rest = url.partition(":")
    authority, slash, path = rest.removeprefix("//").partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path.partition('?')[0]}"

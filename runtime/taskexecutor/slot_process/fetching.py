"""Fetches files of a job that are named by a URL: with the rights, the network and the credentials of the job.

`local:` is a file of this host, `http(s):` is read as it is, other schemes by fsspec where it has them, and else by the
Hadoop of the job's Spark, with the job's own Hadoop conf. A file appears under its name when it is whole; tasks of a
job that fetch the same file at once do no harm.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import importlib
import os
import re
import shutil
import socket
import string
import urllib.error
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from runtime.common.errors import InvalidInputError
from runtime.common.printable import printable
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
"""Seconds of silence. What comes more slowly in the long run ends too (`paced_http`)."""
_PIECE = 1 << 20
_BYTES_MAX = UnpackLimits().bytes_max
"""Of one file. More is data, which the job reads where it is."""
_WHOLE = frozenset({200, 203})
"""Others have no body, or a part of one."""
_NOT_FOUND = frozenset({404, 410})
_NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
_LATER = frozenset({408, 425, 429})
_OF_THE_HOST = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE})
_JAVA_NOT_FOUND = frozenset({"java.io.FileNotFoundException", "java.nio.file.NoSuchFileException"})
_JAVA_NO_HOST = "java.net.UnknownHostException"
_JAVA_NO_SCHEME = "org.apache.hadoop.fs.UnsupportedFileSystemException"
_REASON_LENGTH_MAX = 300
_QUERY = re.compile(r"\?[^\s'\"]+")
"""Of the URL, and of what an answer or a driver has made of it."""


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
    building = _beside(target, "fetched")
    try:
        _copy(url, scheme.lower(), building, spark)
        building.rename(target)
    except OSError as error:
        if error.errno in _OF_THE_HOST:
            raise
        raise _unavailable(url, error) from error
    finally:
        building.unlink(missing_ok=True)


def is_of_hadoop(url: str) -> bool:
    """True if only Hadoop of a Spark can read it."""
    scheme = url.partition(":")[0].lower()
    return scheme not in {_LOCAL, *_HTTP} and (scheme in _OF_HADOOP or _fsspec_of(url) is None)


def no_session() -> SparkSession:
    """What a Java application has of Spark before it runs. Raises RemoteFileError."""
    message = (
        "a Java application has no Spark before it runs, so its files and archives are files of the client, or URLs of "
        "local:, http(s): or fsspec; name others in spark.files and spark.archives of its conf"
    )
    raise RemoteFileError(message)


def _fetch_archive(file: RemoteFile, target: Path, budget: Budget, spark: GetSpark) -> None:
    packed, unpacked = _beside(target, "packed"), _beside(target, "unpacked")
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


def _beside(target: Path, what: str) -> Path:
    """A name in the same directory that no file of the job has, and that is not longer than names can be."""
    return target.with_name(f".{hashlib.sha256(target.name.encode()).hexdigest()[:16]}.{os.getpid()}.{what}")


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
            _copy_bounded(url, source, copy)
    except FileNotFoundError as error:
        raise _not_found(url) from error
    except PermissionError as error:
        message = f"{shown(url)} cannot be read with the credentials of the job: {_without_query(url, error)}"
        raise RemoteFileError(message) from error
    except OSError:
        raise
    except Exception as error:  # each driver has errors of its own
        raise _unavailable(url, error) from error


def _copy_http(url: str, target: Path) -> None:
    from runtime.taskexecutor.slot_process.paced_http import RefusedRedirectError, open_url

    try:
        asked = urllib.parse.quote(url, safe=string.punctuation)
        with open_url(asked, _TIMEOUT) as answer, target.open("wb") as copy:
            if answer.status not in _WHOLE:
                raise _answered(url, answer.status, answer.reason)
            _copy_bounded(url, answer, copy)
            if answer.length:  # what lacks: a read of pieces does not tell
                raise http.client.IncompleteRead(b"", answer.length)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _NOT_FOUND:
            raise _not_found(url) from error
        raise _answered(url, error.code, str(error.reason)) from error
    except RefusedRedirectError as error:
        message = f"{shown(url)} is not fetched: {error}"
        raise RemoteFileError(message) from error
    except (ValueError, http.client.InvalidURL) as error:
        message = f"{shown(url)} is no address that can be asked: {_without_query(url, error)}"
        raise RemoteFileError(message) from error
    except http.client.HTTPException as error:
        raise _unavailable(url, error) from error


def _answered(url: str, status: int, reason: str) -> RemoteFileError | FileUnavailableError:
    message = f"{shown(url)} is answered with {status} {printable(reason)[:_REASON_LENGTH_MAX]}"
    is_to_pass = status >= 500 or status in _LATER
    return FileUnavailableError(message) if is_to_pass else RemoteFileError(message)


def _copy_bounded(url: str, source: IO[bytes], copy: IO[bytes]) -> None:
    size = 0
    while data := source.read(_PIECE):
        size += len(data)
        if size > _BYTES_MAX:
            message = f"{shown(url)} is larger than {_BYTES_MAX >> 30} GiB: read it in the job"
            raise RemoteFileError(message)
        copy.write(data)


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


def _unavailable(url: str, error: Exception) -> FileUnavailableError | RemoteFileError:
    """FileUnavailableError for what may pass; RemoteFileError for an address that nobody answers."""
    causes = java_chain(error)
    reason = causes[-1].message[:_REASON_LENGTH_MAX] if causes else _without_query(url, error)
    if _is_of_nobody(error) or any(one.class_name == _JAVA_NO_HOST for one in causes):
        return RemoteFileError(f"{shown(url)} cannot be fetched, as nobody is at that address: {reason}")
    return FileUnavailableError(f"{shown(url)} cannot be fetched now: {reason}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, each once. urllib has the cause in `reason`."""
    seen: list[BaseException] = []
    found: object = error
    while isinstance(found, BaseException) and found not in seen:
        seen.append(found)
        yield found
        found = getattr(found, "reason", None) or found.__cause__ or found.__context__


def _is_of_nobody(error: BaseException) -> bool:
    """The name does not exist, or the host refuses: a restart finds the same. Not so after a time-out, also of a driver
    that has asked another address before, which refuses.
    """
    chain = [*_chain(error)]
    if any(isinstance(one, TimeoutError) for one in chain):
        return False
    return any(
        isinstance(one, ConnectionRefusedError) or (isinstance(one, socket.gaierror) and one.errno in _NO_SUCH_NAME)
        for one in chain
    )


def _without_query(url: str, error: Exception) -> str:
    """What an error says, without what may sign the URL."""
    text = (str(error) or type(error).__name__).replace(url, shown(url))
    return printable(_QUERY.sub("?...", text))[:_REASON_LENGTH_MAX]


def shown(url: str) -> str:
    """The URL without a password, and without a query, which may sign it."""
    scheme, _, rest = url.partition(":")
    authority, slash, path = rest.removeprefix("//").partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path.partition('?')[0]}"

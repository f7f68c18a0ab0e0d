"""Directories below the state of queries, by the file systems that the job's Spark knows: it may lie on any of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from runtime.taskexecutor.slot_process.causes import TaskError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFiles:
    """The file systems that the job's Spark knows."""

    def __init__(self, spark: SparkSession) -> None:
        java: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop's file systems
        self._paths = java.org.apache.hadoop.fs
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001

    def names(self, directory: str) -> list[str]:
        """What lies in a directory; nothing where there is none."""
        path = self._paths.Path(directory)
        files = path.getFileSystem(self._conf)
        return [one.getPath().getName() for one in files.listStatus(path)] if files.exists(path) else []

    def delete(self, directory: str) -> None:
        path = self._paths.Path(directory)
        path.getFileSystem(self._conf).delete(path, True)  # noqa: FBT003 - Hadoop's signature: with what is in it

    def make_directory(self, directory: str) -> None:
        """Raises TaskError where the state of queries cannot be written."""
        with _told():
            path = self._paths.Path(directory)
            path.getFileSystem(self._conf).mkdirs(path)

    def write(self, name: str, content: bytes) -> None:
        """A file, in the place of one that is there. Raises TaskError as `make_directory`."""
        with _told():
            path = self._paths.Path(name)
            out = path.getFileSystem(self._conf).create(path, True)  # noqa: FBT003 - Hadoop's signature: overwrite
            try:
                out.write(content)
            finally:
                out.close()


@contextmanager
def _told() -> Iterator[None]:
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        message = (
            f"the state of the job's queries cannot be written: {error.java_exception.getMessage()}. "
            "execution.checkpointing.dir must be a directory that Spark of all TaskManagers may write"
        )
        raise TaskError(message) from error

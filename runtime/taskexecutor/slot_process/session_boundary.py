"""The boundary of a session: what user code calls on the shared context reaches only its own session.

Inside the JVM the session's own context keeps jobs apart (`jvm/SlotContext.java`, R22): cached data, the Hadoop conf,
the checkpoint directory, groups and tags by name, `cancelAllJobs`, `setLogLevel` (of its output), `stop` (ignored).
Here classes of pyspark are changed, in this process only: `stop` (ends what the session runs), `addFile`, `addPyFile`,
`addArchive` (job's directory), `SparkFiles`, `setSystemProperty`, `SparkContext(...)`, `SparkSession(sc)` and
`builder.getOrCreate()` (the warm ones). JVM-wide and not bounded: job and stage ids (`cancelStage`), classes of
`ADD JAR`, and that one StreamingContext at a time can be started.
"""

from __future__ import annotations

import functools
import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.common.errors import InvalidInputError
from runtime.common.spark_conf import APP_NAME, ISOLATION, JVM
from runtime.taskexecutor.slot_process.attached_spark import AttachedSpark
from runtime.taskexecutor.slot_process.job_files import copy_into
from runtime.taskexecutor.slot_process.state_processors import own_processors
from runtime.taskexecutor.worker_protocol.worker_environment import WORKING_DIRECTORY_LINK

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

_PACKAGE_SUFFIXES = frozenset({".zip", ".egg", ".jar"})


def install(attached: AttachedSpark) -> None:
    """Change pyspark's classes in this process, for this session."""
    _bound_context(attached)
    _bound_files(attached)
    _bound_construction(attached)
    _bound_builder(attached)
    _own_processors(attached)


def _replace(owner: type, name: str, function: Any) -> None:
    setattr(owner, name, function)


def _bound_context(attached: AttachedSpark) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _replace(SparkContext, "stop", lambda _: attached.detach())
    _replace(SparkSession, "stop", lambda _: attached.detach())
    _replace(SparkContext, "setSystemProperty", classmethod(lambda _, key, value: set_property(attached, key, value)))


def set_property(attached: AttachedSpark, key: str, value: str) -> None:
    """What names Spark conf is the job's conf. All else is a property of the JVM, and refused where jobs share that."""
    if key.startswith("spark."):
        attached.activate()
        attached.apply_conf({key: value})
    elif attached.session.is_of_one_job:
        attached.activate()
        attached.context._jvm.java.lang.System.setProperty(key, value)  # type: ignore[union-attr]  # noqa: SLF001 - as pyspark
    else:
        message = (
            f"{key}: system properties belong to the JVM, which other jobs share: a job can set spark.* only, unless "
            f"it has a JVM of its own ({ISOLATION}: {JVM})"
        )
        raise InvalidInputError(message)


def _bound_files(attached: AttachedSpark) -> None:
    from pyspark import SparkContext
    from pyspark.core.files import SparkFiles

    def bring(path: str, *, recursive: bool = False) -> Path:
        binding = attached.binding
        return copy_into(binding.job_directory, path, recursive=recursive, is_shared=binding.shares_files)

    def add_file(_: SparkContext, path: str, recursive: bool = False) -> None:  # noqa: FBT001, FBT002 - pyspark's signature
        bring(path, recursive=recursive)
        attached.use_own_workers()

    def add_python_file(_: SparkContext, path: str) -> None:
        added = bring(path)
        entry = str(added) if added.suffix.lower() in _PACKAGE_SUFFIXES else str(added.parent)
        if entry not in sys.path:
            sys.path.insert(1, entry)
        attached.add_to_worker_path(entry)

    def add_archive(_: SparkContext, path: str) -> None:
        source, _separator, alias = path.partition("#")
        added = bring(source)
        _unpack(added, Path(attached.binding.job_directory) / (alias or added.name))
        attached.use_own_workers()

    _replace(SparkContext, "addFile", add_file)
    _replace(SparkContext, "addPyFile", add_python_file)
    _replace(SparkContext, "addArchive", add_archive)
    _replace(SparkFiles, "getRootDirectory", classmethod(lambda _: attached.binding.job_directory))


def _own_processors(attached: AttachedSpark) -> None:
    """The driver of a `transformWithState` reads the processor first of all, and learns its session from it (R29)."""
    from pyspark.sql.group import GroupedData

    if not attached.session.directory or "spark.python.daemon.module" not in attached.session.conf:
        return
    link = str(Path(attached.session.directory) / WORKING_DIRECTORY_LINK)

    def owned(plain: Any) -> Any:
        @functools.wraps(plain)
        def call(*arguments: Any, **options: Any) -> Any:
            own_processors(attached.session.session_id, link)
            return plain(*arguments, **options)

        return call

    for name in ("transformWithState", "transformWithStateInPandas"):
        if hasattr(GroupedData, name):  # Spark 4.0 has the second one only
            _replace(GroupedData, name, owned(getattr(GroupedData, name)))


def _unpack(archive: Path, target: Path) -> None:
    packed = archive.rename(archive.with_name(f".{archive.name}"))
    target.mkdir(exist_ok=True)
    if archive.suffix.lower() in _PACKAGE_SUFFIXES:
        shutil.unpack_archive(packed, target, "zip")
    else:
        shutil.unpack_archive(packed, target, filter="data")
    packed.unlink()


def _bound_construction(attached: AttachedSpark) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    def new_context(_: type[SparkContext], *__: Any, **___: Any) -> SparkContext:
        return attached.context

    def initialize_context(
        _: SparkContext,
        master: str | None = None,
        appName: str | None = None,  # noqa: N803 - pyspark's names
        sparkHome: str | None = None,  # noqa: N803
        pyFiles: list[str] | None = None,  # noqa: N803
        environment: dict[str, Any] | None = None,
        batchSize: int = 0,  # noqa: N803
        serializer: Any = None,
        conf: SparkConf | None = None,
        **unused: Any,
    ) -> None:
        ignored = (master, sparkHome, batchSize, serializer, unused)
        logger.debug("the warm context is handed out; ignored: %s", ignored)
        attached.activate()
        if conf is not None:
            attached.apply_conf(attached.own_part(conf.getAll()))
        if appName is not None:
            attached.apply_conf({APP_NAME: appName})
        for key, value in (environment or {}).items():
            attached.context.environment[key] = value
        for path in pyFiles or []:
            attached.context.addPyFile(path)

    original = SparkSession.__init__

    def initialize_session(
        session: SparkSession,
        sparkContext: SparkContext,  # noqa: N803 - pyspark's names
        jsparkSession: Any = None,  # noqa: N803
        options: Any = None,
    ) -> None:
        # Without a session given, the original takes the JVM's default one, which belongs to no slot (pitfall 5).
        own = attached.spark._jsparkSession if jsparkSession is None else jsparkSession  # noqa: SLF001 - as pyspark
        attached.apply_conf(options or {})
        original(session, sparkContext, own, {})

    _replace(SparkContext, "__new__", new_context)
    _replace(SparkContext, "__init__", initialize_context)
    _replace(SparkSession, "__init__", initialize_session)


def _bound_builder(attached: AttachedSpark) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    def get_or_create(builder: Any) -> SparkSession:
        spark = attached.spark
        attached.apply_conf(builder._options)  # noqa: SLF001 - there is no reader for them
        return spark

    def get_context(_: type[SparkContext], conf: Any = None) -> SparkContext:
        attached.activate()
        if conf is not None:
            attached.apply_conf(attached.own_part(conf.getAll()))
        return attached.context

    _replace(SparkSession.Builder, "getOrCreate", get_or_create)
    _replace(SparkContext, "getOrCreate", classmethod(get_context))
    _activate_on(attached, SparkSession, "getActiveSession")
    _activate_on(attached, SparkSession, "active")


def _activate_on(attached: AttachedSpark, owner: type, name: str) -> None:
    original: Callable[[type], Any] = getattr(owner, name).__func__

    def activated(cls: type) -> Any:
        attached.activate()
        return original(cls)

    _replace(owner, name, classmethod(activated))

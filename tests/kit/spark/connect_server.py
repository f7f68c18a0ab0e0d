"""A real Spark Connect server, started from pyspark's own jars."""

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from runtime.taskexecutor.driver_jvm.command import MODULE_OPTIONS, class_path, spark_home
from runtime.taskexecutor.driver_jvm.java import find_java
from tests.kit.cluster.script_cluster import free_port
from tests.kit.spark.spark_box import ONE_COMPILER, wait_until

HOST = "127.0.0.1"
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
MISSING = [name for name in ("grpc_status", "zstandard", "google.rpc") if importlib.util.find_spec(name) is None]
"""Packages of requirements/connect.txt that are not installed here."""


@dataclass
class ConnectServer:
    """`start`, `kill` and `start` again, at the same port."""

    directory: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def master(self) -> str:
        """The value of `spark.master`."""
        return f"sc://{HOST}:{self.port}"

    @property
    def log(self) -> str:
        """What it has said."""
        return (self.directory / "connect.log").read_text()

    def start(self) -> None:
        """Return when it listens."""
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_HOME": str(spark_home()),
            "PYSPARK_PYTHON": sys.executable,
        }
        conf = {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            **self.conf,
        }
        java = [str(find_java(os.environ).executable), "-Xmx768m", ONE_COMPILER, *MODULE_OPTIONS]
        options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        submit = ["org.apache.spark.deploy.SparkSubmit", "--class", _CLASS, *options, "spark-internal"]
        with (self.directory / "connect.log").open("ab") as output:
            self.process = subprocess.Popen(
                [*java, "-cp", class_path(spark_home(), {}), *submit],
                env=environment,
                cwd=self.directory,
                stdout=output,
                stderr=output,
            )
        wait_until(self._listens, 120)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log[-3000:]
        found = psutil.Process(self.process.pid).net_connections("tcp")
        return any(one.status == psutil.CONN_LISTEN and one.laddr.port == self.port for one in found)


@contextlib.contextmanager
def connect_server(conf: Mapping[str, str] | None = None) -> Iterator[ConnectServer]:
    """One that runs within the block."""
    with tempfile.TemporaryDirectory(prefix="connect-") as directory:
        server = ConnectServer(Path(directory), conf or {})
        server.start()
        try:
            yield server
        finally:
            server.kill()

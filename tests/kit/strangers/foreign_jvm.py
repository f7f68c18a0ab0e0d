"""A JVM of another user, from pyspark's own jars: what it gets from the ports of a Spark that is not its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from runtime.aio.clock import SystemClock
from runtime.common.clock import Deadline
from runtime.taskexecutor.driver_jvm.command import MODULE_OPTIONS, class_path, jvm_environment, spark_home
from runtime.taskexecutor.driver_jvm.java import find_java
from runtime.taskexecutor.spark_host.launch import JvmProcess
from runtime.taskexecutor.spark_protocol.gateway import connect
from tests.kit.spark.spark_box import ONE_COMPILER

_HOST = "127.0.0.1"
_TIMEOUT = 120.0


class ForeignJvm:
    """Started at once; `end` it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        address_file = directory / "gateway"
        java = str(find_java(os.environ).executable)
        main = "org.apache.spark.api.python.PythonGatewayServer"
        command = [java, "-Xmx256m", ONE_COMPILER, *MODULE_OPTIONS, "-cp", class_path(spark_home(), {}), main]
        environment = jvm_environment(os.environ, connection_file=address_file, local_host=_HOST)
        self._process = JvmProcess(command, environment, log_file=directory / "log", cwd=directory)
        clock = SystemClock()
        address = self._process.wait_gateway(address_file, clock, Deadline.after(clock, _TIMEOUT))
        self._gateway = connect(address.port, address.secret)

    def dial(self, port: int, conf: dict[str, str]) -> str:
        """Ask the endpoint `BlockManagerMaster` of the driver at that port for the memory of its executors: its answer.

        Raises Py4JJavaError for a refusal.
        """
        spark: Any = self._gateway.jvm.org.apache.spark
        wanted = spark.SparkConf(False)
        for key, value in {"spark.rpc.lookupTimeout": "40s", "spark.rpc.askTimeout": "40s", **conf}.items():
            wanted.set(key, value)
        manager = spark.SecurityManager
        own = manager(wanted, self._gateway.jvm.scala.Option.empty(), getattr(manager, "$lessinit$greater$default$3")())
        rpc = spark.rpc.RpcEnv.create("foreign", _HOST, 0, wanted, own, True)
        try:
            master = rpc.setupEndpointRef(spark.rpc.RpcAddress(_HOST, port), "BlockManagerMaster")
            question = getattr(getattr(spark.storage, "BlockManagerMessages$GetMemoryStatus$"), "MODULE$")
            return str(master.askSync(question, self._gateway.jvm.scala.reflect.ClassTag.Any()).toString())
        finally:
            rpc.shutdown()

    def refusal(self, port: int, conf: dict[str, str]) -> str:
        """Why it is refused; "" if it is answered."""
        try:
            self.dial(port, conf)
        except Py4JJavaError as error:
            return str(error.java_exception)
        return ""

    def end(self) -> None:
        self._gateway.close()
        self._process.kill()

"""A py4j connection to a driver JVM, as pyspark itself would make it.

One connection per Python thread (pyspark's pinned mode), so each thread has its own local properties in the JVM.
"""

from __future__ import annotations

from typing import Any

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import java_import

# What pyspark.java_gateway.launch_gateway imports; pyspark's code looks classes up by these short names.
_IMPORTS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)

PLANTED_SLOT = "slot"
PLANTED_CONTEXT = "slot_jsc"
PLANTED_SESSION = "slot_session"
PLANTED_SCRIPTS = "slot_scripts"
PLANTED_ACCUMULATOR = "slot_accumulator"
"""Ids in a session's gateway: its SlotSession, JavaSparkContext, SparkSession and ScriptQueries, and the accumulator
that it has registered in place of that of its process."""


def connect(port: int, secret: str) -> Any:
    """A gateway to the server at `port` of this host.

    A process that calls back shows the same secret (R44, `jvm/SlotGateway.java`): pyspark's own lets every process on
    this host call the functions of a script.
    """
    gateway = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False, auth_token=secret),
    )
    for name in _IMPORTS:
        java_import(gateway.jvm, name)
    return gateway

"""Options of spark-submit that `flinklike run` does not have, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_flinklike.api.spark_start import SET_AT_START

_EXECUTORS = (
    "executors are running already: name it in --conf {}=...; a TaskManager that was started with it runs the job"
)
_USER = "jobs run as the TaskManagers' user: --secret gives a job a credential of the TaskManagers"
_JVM = "the driver is running already: use {} of the configuration of the TaskManagers"

INSTEAD: Mapping[str, str] = {
    **{f"--{name.replace('_', '-')}": instead for name, instead in SET_AT_START.items()},
    "--master": "leave it out: --address names the cluster, whose TaskManagers have the master (spark.master)",
    "--remote": "leave it out: --address names the cluster",
    "--deploy-mode": "leave it out: the driver always is in a TaskManager",
    "--class": "only Python applications run on warm slots; keep spark-submit for a main class of a jar",
    "--driver-java-options": _JVM.format("spark.driver.extraJavaOptions"),
    "--driver-library-path": _JVM.format("spark.driver.extraLibraryPath"),
    "--executor-memory": _EXECUTORS.format("spark.executor.memory"),
    "--executor-cores": _EXECUTORS.format("spark.executor.cores"),
    "--num-executors": _EXECUTORS.format("spark.executor.instances"),
    "--total-executor-cores": _EXECUTORS.format("spark.cores.max"),
    "--properties-file": "name each of its settings in --conf key=value",
    "--load-spark-defaults": "name each setting in --conf key=value",
    "--proxy-user": _USER,
    "--principal": _USER,
    "--keytab": _USER,
    "--queue": "the application exists already: use spark.yarn.queue of the configuration of the TaskManagers",
    "--supervise": "use --restart-strategy and --user-failures",
    "--kill": "use `flinklike cancel JOB`",
    "--status": "use `flinklike status JOB`",
    "--verbose": "leave it out: what the job writes is shown anyway",
}
"""Option -> what to do, in one sentence."""

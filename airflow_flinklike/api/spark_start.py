"""Options of spark-submit that Spark reads at its start: the conf that each stands for, or what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

CONF_OF: Mapping[str, str] = {
    "packages": "spark.jars.packages",
    "exclude_packages": "spark.jars.excludes",
    "repositories": "spark.jars.repositories",
    "driver_memory": "spark.driver.memory",
    "driver_class_path": "spark.driver.extraClassPath",
    "executor_memory": "spark.executor.memory",
    "executor_cores": "spark.executor.cores",
    "num_executors": "spark.executor.instances",
    "total_executor_cores": "spark.cores.max",
    "yarn_queue": "spark.yarn.queue",
}
"""Parameter of Airflow's SparkSubmitOperator -> key of Spark's conf. A value wins over that of the key in `conf`."""

SET_AT_START: Mapping[str, str] = {
    "driver_cores": "the driver has the cores of its TaskManager: use spark.master, local[n], of the configuration of "
    "the TaskManagers",
}
"""Parameter of Airflow's SparkSubmitOperator -> one sentence that says what to use instead."""

"""Options that Spark reads at its start only: a job on a warm session cannot set them."""

from __future__ import annotations

from collections.abc import Mapping

AT_START = "{} of the configuration of the TaskManagers"

SET_AT_START: Mapping[str, str] = {
    "jars": "jars are loaded when Spark starts: use " + AT_START.format("spark.jars"),
    "packages": "packages are loaded when Spark starts: use " + AT_START.format("spark.jars.packages"),
    "exclude_packages": "packages are loaded when Spark starts: use " + AT_START.format("spark.jars.excludes"),
    "repositories": "packages are loaded when Spark starts: use " + AT_START.format("spark.jars.repositories"),
    "driver_class_path": "the driver is running already: use " + AT_START.format("spark.driver.extraClassPath"),
    "driver_memory": "the driver is running already: use " + AT_START.format("taskmanager.memory.spark.size"),
    "driver_cores": "the driver is running already: use " + AT_START.format("spark.master, local[n],"),
}
"""Parameter of Airflow's SparkSubmitOperator -> one sentence that says what to use instead."""

"""A cluster writes below its run directory: what docs/operations.md says of an uninstall is all there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_flinklike import function_job
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.spark.spark_box import QUICK_JVM

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.etcd]

OPTIONS = {
    "taskmanager.numberOfTaskSlots": "1",
    "taskmanager.memory.task.size": "640 mb",
    "taskmanager.memory.spark.size": "768 mb",
    "taskmanager.spark.warm-up.count": "1",
    "spark.sql.shuffle.partitions": "2",
    **QUICK_JVM,
}


@pytest.mark.extended
def test_home_and_temporary_directory_are_left_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, class_archive: Path | None
) -> None:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    for path, variables in ((home, ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")), (temporary, ("TMPDIR",))):
        path.mkdir()
        for variable in variables:
            monkeypatch.setenv(variable, str(path))

    def tables(spark: object) -> int:
        from pyspark.sql import SparkSession

        assert isinstance(spark, SparkSession)
        spark.range(100).write.saveAsTable("numbers")
        return spark.table("numbers").cache().repartition(3).count()

    with ScriptCluster(OPTIONS, job_masters=1, class_archive=class_archive) as cluster:
        assert function_job(tables).submit(cluster.url, token=cluster.token).result() == 100
    assert [str(path) for root in (home, temporary) for path in root.rglob("*")] == []

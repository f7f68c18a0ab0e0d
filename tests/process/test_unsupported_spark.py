"""A host with a PySpark that is not supported: its TaskManager does not start, and says so where it is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.etcd]

METADATA = "Metadata-Version: 2.1\nName: pyspark\nVersion: 3.5.1\n"


def test_a_cluster_whose_pyspark_is_not_supported_does_not_start(tmp_path: Path) -> None:
    installed = tmp_path / "pyspark-3.5.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(METADATA)
    cluster = ScriptCluster(SPARK)
    cluster.environment["PYTHONPATH"] = str(tmp_path)
    try:
        done = cluster.script("start-cluster.sh", *cluster.dynamic)
        assert done.returncode == 1, done.stdout
        sentence = "Error starting taskmanager daemon: PySpark 3.5.1 is not supported: 4.0 to 4.3 are"
        assert done.stderr.splitlines()[-1] == sentence
        assert not cluster.processes()
    finally:
        cluster.close()

"""The kit's cluster tells when something outlives it: every test with a cluster rests on that."""

from __future__ import annotations

import subprocess

import pytest

from tests.kit.cluster.script_cluster import ScriptCluster

pytestmark = pytest.mark.process


def test_a_process_that_outlives_its_cluster_is_told_and_ended() -> None:
    cluster = ScriptCluster({})
    with subprocess.Popen(["sleep", "600"], env=cluster.environment) as left:
        with pytest.raises(AssertionError, match=rf"left behind: {{{left.pid}: 'sleep 600 '}}"):
            cluster.close()
        assert left.wait(100) != 0
    assert not cluster.run.exists()


def test_a_stop_that_fails_is_told() -> None:
    cluster = ScriptCluster({})
    cluster.environment["FLINKLIKE_PYTHON"] = str(cluster.run / "no-python")
    with pytest.raises(AssertionError, match=r"stop-cluster\.sh: .*no-python cannot run this"):
        cluster.close()
    assert not cluster.run.exists()

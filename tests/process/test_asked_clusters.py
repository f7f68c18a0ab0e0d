"""`bin/commit-outputs.sh` asks the cluster that the configuration names, and changes nothing there (R27)."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.entrypoint import commit_outputs
from runtime.security.cluster_key import load_or_create_cluster_key
from runtime.taskexecutor.outputs.commit_records import commit_names
from tests.kit.control_plane.commits_of_jobs import Known, move, names, room_for, written
from tests.kit.control_plane.committed_outputs import visible
from tests.kit.control_plane.task_messages import job_id
from tests.kit.etcd.server import EtcdProcess

A = job_id(1)
CLUSTER = "never-started"


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    """The base of a job of some cluster whose commit has failed."""
    base = tmp_path / "out"
    with room_for(1), pytest.raises(InvalidInputError, match="to repeat the commit"):
        move(A, written(base, A), Known())
    return base


def repeat(base: Path, *arguments: str) -> int:
    return commit_outputs.main([*arguments, f"{base}/{commit_names(A).directory}"])


@pytest.mark.process
@pytest.mark.etcd
def test_a_store_without_a_cluster_stays_one(
    etcd: EtcdProcess, failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A uuid that it made would be that of no cluster, and would say that the job is not known."""
    key = failed.parent / "cluster-key"
    settings = {
        **etcd.options(),
        "high-availability.cluster-id": CLUSTER,
        "security.cluster-key-file": str(key),
    }
    dynamic = [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
    assert repeat(failed, *dynamic) == 1
    assert "cannot read the cluster key file" in capsys.readouterr().err, (
        "one that it made would be no cluster's either"
    )
    load_or_create_cluster_key(key)
    assert repeat(failed, *dynamic) == 1
    refusal = capsys.readouterr().err
    assert f"no cluster can be asked: etcd holds none that is called {CLUSTER}" in refusal
    assert CLUSTER not in etcd.ctl("get", "", "--from-key", "--keys-only")
    assert visible(failed) != names(A)
    assert repeat(failed, *dynamic, "--job-is-over") == 0
    assert visible(failed) == names(A)


@pytest.mark.parametrize("dynamic", ["high-availability.tpye=none", "high-availability.type", ""])
def test_a_mistyped_option_is_told_and_not_taken_for_a_cluster_that_is_away(
    failed: Path, capsys: pytest.CaptureFixture[str], dynamic: str
) -> None:
    """Not even with the option that says that the job is over: a typo is no reason to believe it."""
    before = visible(failed)
    assert repeat(failed, "--job-is-over", f"-D{dynamic}") == 2
    told = capsys.readouterr().err
    assert dynamic.partition("=")[0] in told
    assert "--job-is-over" not in told
    assert visible(failed) == before


def test_an_embedded_etcd_that_does_not_run_is_a_cluster_that_is_away(
    failed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLINKLIKE_RUN_DIR", str(tmp_path / "run"))
    dynamic = ["-Dhigh-availability.type=etcd", "-Dhigh-availability.etcd.embedded=true"]
    assert repeat(failed, *dynamic) == 1
    refusal = capsys.readouterr().err
    assert "no cluster can be asked: the embedded etcd of" in refusal
    assert "with --job-is-over" in refusal
    assert repeat(failed, *dynamic, "--job-is-over") == 0

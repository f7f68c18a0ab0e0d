"""R41 on a real cluster: what it writes is for its user only, and what its tasks see of its environment."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.jobgraph.task_credentials import VARIABLE
from tests.kit.cluster.script_cluster import ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "1",
    "taskmanager.environment.passed": "SHOP_*",
}
SCRIPT = """
import json, os, subprocess, sys
from pathlib import Path

said = subprocess.run([sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"],
                      capture_output=True, text=True, check=True).stdout
out = Path(sys.argv[1])
out.mkdir()
(out / "report.txt").write_text("for others")
(out / "told.json").write_text(json.dumps({"own": dict(os.environ), "of a program": json.loads(said)}))
"""


class OpenedCluster(ScriptCluster):
    """Its run directory exists before and is open to others; the environment of its start has secrets."""

    def __init__(self) -> None:
        super().__init__(OPTIONS, job_masters=1)
        run = self.run / "run"
        run.mkdir(mode=0o755)
        run.chmod(0o755)
        self.environment |= {"STORE_PASSWORD": "secret", "SHOP_ID": "7", "FLINKLIKE__ENV__LOG__MAX": "9"}
        self.said = ""

    def start(self) -> str:
        """As ever, by a user whose files others may read."""
        before = os.umask(0o022)
        try:
            self.said = super().start()
        finally:
            os.umask(before)
        return self.said


@pytest.fixture(scope="module")
def cluster() -> Iterator[OpenedCluster]:
    with OpenedCluster() as started:
        yield started


@pytest.fixture(scope="module")
def out(cluster: OpenedCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("job")
    script = directory / "job.py"
    script.write_text(SCRIPT)
    done = cluster.cli("run", str(script), str(directory / "out"))
    assert done.returncode == 0, done.stderr
    return directory / "out"


def test_nothing_that_the_cluster_writes_is_for_others(cluster: OpenedCluster, out: Path) -> None:
    assert out.is_dir(), "a job has run"
    run = cluster.run / "run"
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    assert f"others could read {run}" in cluster.said
    open_to_others = [
        f"{path.relative_to(run)}: {found.st_mode:o}"
        for path in run.rglob("*")
        if not path.is_symlink() and stat.S_IMODE((found := path.lstat()).st_mode) & 0o077
    ]
    # Of a script's own directory the script is the owner, with its own mask; it lies in ours.
    assert [one for one in open_to_others if not one.startswith(("work/", "log/attempts/"))] == []
    kinds = {path.relative_to(run).parts[0] for path in run.rglob("*")}
    assert {"pid", "log", "etcd", "storage", "token", "guards", "work"} <= kinds


def test_what_a_job_writes_is_as_who_started_the_cluster_has_it(out: Path) -> None:
    assert [stat.S_IMODE(path.stat().st_mode) for path in (out, out / "report.txt")] == [0o755, 0o644]


def test_tasks_get_of_the_environment_what_is_on_the_list(out: Path) -> None:
    for seen in json.loads((out / "told.json").read_text()).values():
        assert seen["PATH"]
        assert seen["HOME"] == os.environ["HOME"]
        assert seen["SHOP_ID"] == "7"
        assert "secret" not in seen.values()
        assert [name for name in seen if name.startswith("FLINKLIKE")] == [VARIABLE]

"""FlinklikeApplicationOperator with the driver docker: TaskManagers are containers of a real daemon, and go with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import docker
import pytest

from tests.kit.airflow.runs import run_dag, xcom
from tests.kit.cluster.compose import API_VERSION, why_not
from tests.kit.cluster.script_cluster import ROOT
from tests.kit.host.levels import reached

REASON = why_not()
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(REASON), reason=REASON),
]
DAGS = Path(__file__).with_name("dag_cases")
TASK = """
import runpy, sys
from types import SimpleNamespace

operator = runpy.run_path(sys.argv[1])["OPERATOR"]
operator.tell_job = lambda *_: None  # there is no Airflow around it
operator.directory = sys.argv[2]
operator.execute({"ti": SimpleNamespace()})
"""


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, metadata_database: None) -> Iterator[Path]:
    """A directory that the user of the image can write too."""
    del metadata_database
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        monkeypatch.setenv("SHARED_WITH_CONTAINERS", name)
        yield Path(name)


@pytest.fixture
def containers() -> Iterator[Callable[[], list[str]]]:
    """The names of what applications have started, and is there, running or not."""
    with closing(docker.DockerClient.from_env(version=API_VERSION)) as client:

        def names() -> list[str]:
            labelled = client.containers.list(all=True, filters={"label": "flinklike.cluster-id"}, ignore_removed=True)
            return [one.name for one in labelled if "-application-" in one.name]

        yield names
        reached(lambda: not names(), "nothing of the clusters is left")


def test_the_tasks_run_in_containers_that_go_with_the_task(shared: Path, containers: Callable[[], list[str]]) -> None:
    seen = SimpleNamespace(names=[])

    def let_it_end() -> None:
        reached((shared / "begun").exists, "the task runs", timeout=240)
        seen.names = containers()
        (shared / "gate").touch()

    looking = threading.Thread(target=let_it_end)
    looking.start()
    run = run_dag("application_in_containers", {})
    looking.join()
    assert str(run.state) == "success"
    assert xcom(run, "place") == {"user": 10001, "is_in_image": True}
    assert len(seen.names) == 1
    assert containers() == []


def test_so_do_they_when_the_worker_is_killed(shared: Path, containers: Callable[[], list[str]]) -> None:
    command = [sys.executable, "-c", TASK, str(DAGS / "application_in_containers.py"), str(DAGS)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE) as worker:
        try:
            reached((shared / "begun").exists, "the task runs", timeout=240)
            assert len(containers()) == 1
        finally:
            worker.kill()
            worker.communicate(timeout=60)

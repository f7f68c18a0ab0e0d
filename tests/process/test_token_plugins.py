"""R51: what an installed package obtains reaches tasks and its receivers, while they run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.services.token_plugin import install

pytestmark = [pytest.mark.process]

PROGRAM = """
from airflow_flinklike import task_credentials
print("got", task_credentials("lake")["token"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "source").write_text("first-token-of-the-plug-in")
    return tmp_path


@pytest.fixture
def cluster(folder: Path) -> Iterator[ScriptCluster]:
    prefix = "security.delegation.token.provider.lake"
    options = {
        "taskmanager.spark.enabled": "false",
        f"{prefix}.type": "demo",
        f"{prefix}.source": str(folder / "source"),
        f"{prefix}.seen": str(folder / "seen"),
    }
    made = ScriptCluster(options, job_masters=1)
    made.environment["PYTHONPATH"] = install(folder / "site")
    with made:
        yield made


def test_an_installed_package_obtains_and_receives(cluster: ScriptCluster, folder: Path) -> None:
    program = folder / "says.py"
    program.write_text(PROGRAM)

    def said() -> str:
        done = cluster.cli("run", str(program))
        assert done.returncode == 0, done.stderr
        return done.stdout

    seen = folder / "seen"
    reached(lambda: seen.exists() and seen.read_text().splitlines() == ["['token'] of 26"], "it is received")
    assert "got first-token-of-the-plug-in" in said()
    (folder / "source").write_text("the-second-one")
    reached(lambda: seen.read_text().splitlines()[-1] == "['token'] of 14", "the new one is received")
    assert "got the-second-one" in said()

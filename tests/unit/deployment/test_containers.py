"""conf/docker: the image's files exist, and the options of each service of the compose file fit together."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from runtime.config.loading import load
from runtime.config.options.high_availability import ETCD_ENDPOINTS
from runtime.config.options.taskmanager import DRAIN_TIMEOUT

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "conf" / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROCESSES = {name: one for name, one in SERVICES.items() if not name.startswith("etcd")}
ENTRY = ROOT / "bin" / "container.sh"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile."""
    text = re.sub(r"\\\n", " ", (FOLDER / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def seconds(text: str) -> int:
    assert text.endswith("s")
    return int(text.removesuffix("s"))


def test_what_is_copied_into_the_image_exists_and_is_let_through() -> None:
    let_through = {
        line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    for word, rest in instructions():
        if word == "COPY":
            source = rest.split()[0]
            assert (ROOT / source).exists(), source
            assert source.partition("/")[0] in let_through, source


def test_the_image_runs_as_nobody_important_with_signals_and_a_health_check() -> None:
    found = instructions()
    users = [rest for word, rest in found if word == "USER"]
    assert users == ["10001:10001"]
    words = dict(found)
    assert words["ENTRYPOINT"] == '["/opt/flinklike/bin/container.sh"]', "no shell between signals and the process"
    assert words["HEALTHCHECK"].endswith('CMD ["/opt/flinklike/bin/container.sh", "health"]')
    assert words["STOPSIGNAL"] == "SIGTERM"


def test_the_roles_are_those_of_the_scripts() -> None:
    text = ENTRY.read_text()
    scripts = set(re.findall(r"\) start (\S+\.sh)", text))
    assert scripts == {
        "jobmanager.sh",
        "start-jobmaster.sh",
        "taskmanager.sh",
        "historyserver.sh",
        "standalone-job.sh",
    }
    assert all((ROOT / "bin" / name).exists() for name in scripts)
    done = subprocess.run([str(ENTRY), "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "jobmanager|jobmaster|taskmanager" in done.stderr


def test_the_compose_file_has_what_a_cluster_needs_to_lose_one_of_each() -> None:
    roles = [one["command"][0] for one in SERVICES.values()]
    assert {role: roles.count(role) for role in roles} == {"etcd": 3, "jobmanager": 2, "jobmaster": 2, "taskmanager": 1}
    assert SERVICES["taskmanager"]["deploy"]["replicas"] == "${TASKMANAGERS:-2}"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_uses_what_the_file_declares(name: str) -> None:
    service = SERVICES[name]
    named = [one.partition(":")[0] for one in service["volumes"] if ":" in one]
    assert set(named) <= COMPOSE["volumes"].keys()
    assert set(service["networks"]) <= COMPOSE["networks"].keys()
    assert service.get("depends_on", {}).keys() <= SERVICES.keys()
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True


@pytest.mark.parametrize("name", PROCESSES)
def test_the_options_of_a_service_fit_together(name: str) -> None:
    environment = {
        key: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for key, value in PROCESSES[name]["environment"].items()
    }
    found = load(FOLDER, environment=environment)
    assert [one.partition(":")[0] for one in found.get(ETCD_ENDPOINTS)] == ["etcd-1", "etcd-2", "etcd-3"]
    assert seconds(PROCESSES[name]["stop_grace_period"]) >= found.get(DRAIN_TIMEOUT).total_seconds() + 10


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_members_of_etcd_know_each_other(number: int) -> None:
    options = dict(one.removeprefix("--").split("=", 1) for one in SERVICES[f"etcd-{number}"]["command"][1:])
    assert options["name"] == f"etcd-{number}"
    assert options["initial-cluster"] == ",".join(f"etcd-{one}=http://etcd-{one}:2380" for one in (1, 2, 3))
    assert options["initial-advertise-peer-urls"] == f"http://etcd-{number}:2380"
    assert options["advertise-client-urls"] == f"http://etcd-{number}:2379"

"""A real job uses credentials that end every few seconds, while the processes that renew them are killed (R51)."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.job_managers import leader_and_standby
from tests.kit.cluster.naps import attempts
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.services.token_service import MARK, TokenService

pytestmark = [pytest.mark.process, pytest.mark.etcd]

RENEWAL_SECONDS = 3.0
LONG, SHORT = 300.0, 30.0
"""Lifetimes. Long ones the service ends when the job has used a newer one; short ones a clock does."""
FETCH = "import sys,urllib.request;sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())"


@pytest.fixture
def lifetime() -> float:
    return LONG


@pytest.fixture
def service(lifetime: float) -> Iterator[TokenService]:
    with TokenService(lifetime) as made:
        yield made


@pytest.fixture
def cluster(service: TokenService) -> Iterator[ScriptCluster]:
    command = f"{sys.executable} -c '{FETCH}' {service.url}/issue"
    options = {
        "taskmanager.spark.enabled": "false",
        "taskmanager.numberOfTaskSlots": "2",
        "high-availability.lease-timeout": "3 s",
        "security.delegation.tokens.renewal.time-ratio": f"{RENEWAL_SECONDS / service.lifetime:g}",
        "security.delegation.tokens.renewal.retry.backoff": "1 s",
        "security.delegation.token.provider.vault.type": "command",
        "security.delegation.token.provider.vault.command": command,
    }
    with ScriptCluster(options, masters=2) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def uses_later_ones(service: TokenService) -> None:
    """Returns when the job has used a token that was issued after this call."""
    before = set(service.issued)
    reached(lambda: set(service.served[-1:]) - before, "a token that is issued from now on is used")


def job_that_uses_tokens(client: FlinklikeClient, service: TokenService, gate: Path) -> JobId:
    """One that has begun to, and ends when the gate is there."""
    job_id = new_job_id()
    params = {"gate": str(gate), "url": service.url}
    client.submit(
        job_graph("uses", "tests.kit.cluster.credential_programs:use_until_gate", params=params), job_id=job_id
    )
    reached(lambda: service.served, "the job uses a token")
    return job_id


def status(client: FlinklikeClient) -> dict[str, Any]:
    (found,) = client.get("/overview")["delegation-tokens"]
    return dict(found)


def holders(directory: Path) -> set[str]:
    """Files that have a token in them, by what is shown of their place."""
    found = set()
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink() and MARK.encode() in path.read_bytes():
            found.add("/".join(path.parts[-2:]))
    return found


def test_a_running_job_always_has_good_ones(
    cluster: ScriptCluster, client: FlinklikeClient, service: TokenService, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job_id = job_that_uses_tokens(client, service, gate)
    (begun,) = attempts(client, [job_id])
    uses_later_ones(service)

    # The owner of the job dies: the tokens do not depend on it.
    os.kill(cluster.pids()["jobmaster"][0], signal.SIGKILL)
    uses_later_ones(service)

    # The leader dies: the next one obtains anew, before those of the one before have ended.
    leader, _ = leader_and_standby(cluster)
    os.kill(leader.pid, signal.SIGKILL)
    uses_later_ones(service)
    uses_later_ones(service)

    # The provider fails, and is told; the job goes on with what it has, and with new ones as soon as there are any.
    service.is_issuing = False
    reached(lambda: status(client)["failures"], "the failure is told")
    assert "ended with code 1" in status(client)["failure"]
    service.is_issuing = True
    uses_later_ones(service)
    reached(lambda: not status(client)["failures"], "the failure is over")

    # All that the job began with has ended, and it goes on.
    service.end_those_before(service.served[-1])
    assert min(service.issued.values()) < time.time()
    uses_later_ones(service)

    assert holders(cluster.run) == {"credentials/vault.json"}
    assert MARK not in str(client.get("/overview")) + str(client.get("/jobmanager/config"))
    reached(lambda: attempts(client, [job_id]), "the job has its owner")
    assert attempts(client, [job_id]) == [begun]
    gate.touch()
    assert client.wait_for_result(job_id).status is JobStatus.FINISHED
    assert service.refused == []
    assert len(set(service.served)) >= 5


@pytest.mark.parametrize("lifetime", [SHORT])
def test_they_end_by_the_clock_and_none_is_used_that_has(
    cluster: ScriptCluster, client: FlinklikeClient, service: TokenService, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job_id = job_that_uses_tokens(client, service, gate)
    (begun,) = attempts(client, [job_id])

    leader, _ = leader_and_standby(cluster)
    os.kill(leader.pid, signal.SIGKILL)
    uses_later_ones(service)
    of_the_next_leader = set(service.issued)
    reached(lambda: time.time() > max(service.issued[one] for one in of_the_next_leader), "all of that time have ended")
    uses_later_ones(service)

    reached(lambda: attempts(client, [job_id]), "the job has its owner")
    assert attempts(client, [job_id]) == [begun]
    gate.touch()
    assert client.wait_for_result(job_id).status is JobStatus.FINISHED
    assert service.refused == []

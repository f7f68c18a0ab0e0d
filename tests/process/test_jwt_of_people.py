"""R48 with real processes: people of an identity provider use the cluster, through a stand-by too."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.services.identity_provider import AUDIENCE, ISSUER, claims, jwk, key_set, rsa_key, signed

pytestmark = [pytest.mark.process, pytest.mark.etcd]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("issuer") / "keys.json"
    path.write_bytes(key_set(jwk(rsa_key(), "k1")))
    return path


@pytest.fixture(scope="module")
def cluster(keys: Path) -> Iterator[ScriptCluster]:
    options = {
        "high-availability.type": "etcd",
        "taskmanager.spark.enabled": "false",
        "security.jwt.issuer": ISSUER,
        "security.jwt.audience": AUDIENCE,
        "security.jwt.jwks": str(keys),
        "security.jwt.claims.role": "groups",
        "security.jwt.roles": "etl=submitter, ops=operator",
    }
    with ScriptCluster(options, masters=2, job_masters=1) as made:
        yield made


def token(name: str, group: str, number: int = 0, **more: Any) -> str:
    said = claims(int(time.time()), sub=name, groups=[group], role=None, **more)
    return signed(said, rsa_key(number), "RS256", kid=f"k{number + 1}")


def as_(cluster: ScriptCluster, shown: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line with that token."""
    before = cluster.environment
    cluster.environment = {**before, "FLINKLIKE_TOKEN": shown}
    try:
        return cluster.cli(*arguments, timeout=120)
    finally:
        cluster.environment = before


def asked(url: str, shown: str) -> httpx.Response:
    return httpx.get(f"{url}/principal", headers={"authorization": f"Bearer {shown}"}, timeout=30)


def test_people_of_an_issuer_work_with_the_cluster(cluster: ScriptCluster, tmp_path: Path) -> None:
    program = tmp_path / "hello.py"
    program.write_text("print('hello of an issuer')\n")
    job = "7" * 32
    done = as_(cluster, token("jane@example.com", "etl"), "run", "--job-id", job, str(program))
    assert (done.returncode, "hello of an issuer" in done.stdout) == (0, True), done.stderr
    (listed,) = json.loads(as_(cluster, token("olga", "ops"), "list", "--json").stdout)["jobs"]
    assert (listed["submitter"], listed["namespace"]) == ("jane@example.com", "team-a")
    elsewhere = as_(cluster, token("bea", "ops", namespace="team-b"), "status", job)
    assert (elsewhere.returncode, "not found" in elsewhere.stderr) == (1, True), elsewhere.stderr
    for url in cluster.urls:
        told = asked(url, token("jane", "etl")).json()
        assert (told["name"], told["role"], told["via"]) == ("jane", "submitter", "jwt"), "by a stand-by too"


def test_who_has_no_role_or_no_time_left_is_told_so(cluster: ScriptCluster) -> None:
    for shown, said in (
        (token("jane", "guests"), "has to be one of etl, ops"),
        (token("jane", "etl", exp=1), "the JWT has expired"),
        (token("jane", "etl", number=1), "there is no key 'k2'"),
    ):
        for url in cluster.urls:
            refused = asked(url, shown)
            assert (refused.status_code, said in refused.text) == (401, True), refused.text
        told = as_(cluster, shown, "list")
        assert (told.returncode, said in told.stderr) == (1, True), told.stderr


def test_keys_are_replaced_while_the_cluster_runs(cluster: ScriptCluster, keys: Path) -> None:
    draft = keys.with_suffix(".new")
    draft.write_bytes(key_set(jwk(rsa_key(), "k1"), jwk(rsa_key(1), "k2")))
    draft.replace(keys)
    for url in cluster.urls:
        reached(lambda url=url: asked(url, token("jane", "etl", number=1)).status_code == 200, f"{url} has it")  # type: ignore[misc]
        assert asked(url, token("jane", "etl")).status_code == 200, "both are good"

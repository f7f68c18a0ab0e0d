"""R48 with real processes: each JobManager takes a client certificate for the principal that an admin gave it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]


@dataclass
class Encrypted:
    """A cluster whose REST asks for certificates, and those of people."""

    cluster: ScriptCluster
    certs: Path
    home: Path
    """Where nothing of the cluster is: its token neither."""

    @property
    def urls(self) -> list[str]:
        return [url.replace("http://", "https://") for url in self.cluster.urls]

    def as_(self, person: str, *arguments: str, url: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """The command line on a host of that person's own."""
        before = self.cluster.environment
        mine = {
            "FLINKLIKE_RUN_DIR": str(self.home),
            "FLINKLIKE_ADDRESS": url or ",".join(self.urls),
            "FLINKLIKE_CA": str(self.certs / "rest-ca.pem"),
            "FLINKLIKE_CERT": str(self.certs / f"client-{person}.pem"),
        }
        self.cluster.environment = {**before, **mine, **more}
        try:
            return self.cluster.cli(*arguments, timeout=120)
        finally:
            self.cluster.environment = before

    def admin(self, *arguments: str) -> None:
        """With the cluster's token, and the certificate of another person."""
        done = self.as_("alice", *arguments, FLINKLIKE_TOKEN=self.cluster.token)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Encrypted]:
    certs, home = tmp_path / "certs", tmp_path / "home"
    home.mkdir()
    rest = certs / "rest-localhost.pem"
    options = {
        "high-availability.type": "etcd",
        "taskmanager.spark.enabled": "false",
        "security.ssl.rest.enabled": "true",
        "security.ssl.rest.authentication-enabled": "true",
        "security.ssl.rest.cert": str(rest),
        "security.ssl.rest.key": str(rest),
        "security.ssl.rest.ca": str(certs / "rest-ca.pem"),
    }
    cluster = ScriptCluster(options, masters=2, job_masters=1)
    for arguments in (
        ("init", str(certs)),
        ("issue", str(certs), "--host", "localhost", "--ip", "127.0.0.1", "--name", "rest"),
        ("issue", str(certs), "--host", "alice", "--name", "client"),
        ("issue", str(certs), "--host", "mallory", "--name", "client"),
    ):
        made = cluster.cli("certs", *arguments)
        assert made.returncode == 0, made.stderr
    with cluster:
        yield Encrypted(cluster, certs, home)


def test_a_certificate_is_somebody_until_it_is_revoked(encrypted: Encrypted, tmp_path: Path) -> None:
    program = tmp_path / "hello.py"
    program.write_text("print('hello of alice')\n")
    refused = encrypted.as_("alice", "list")
    assert (refused.returncode, "no principal signs in by the certificate of 'alice'" in refused.stderr) == (1, True)
    encrypted.admin(
        "tokens", "create", "sales", "--role", "submitter", "--namespace", "team-a", "--certificate", "alice"
    )
    for number, url in enumerate(encrypted.urls):
        reached(lambda url=url: encrypted.as_("alice", "list", url=url).returncode == 0, f"{url} knows her")  # type: ignore[misc]
        job = f"{number + 1}" * 32
        done = encrypted.as_("alice", "run", "--job-id", job, str(program), url=url)
        assert (done.returncode, "hello of alice" in done.stdout) == (0, True), done.stderr
    listed = json.loads(encrypted.as_("alice", "list", "--json").stdout)["jobs"]
    assert {(one["submitter"], one["namespace"]) for one in listed} == {("sales", "team-a")}
    for url in encrypted.urls:
        stranger = encrypted.as_("mallory", "list", url=url)
        assert (stranger.returncode, "of 'mallory'" in stranger.stderr) == (1, True), stranger.stderr
    forbidden = encrypted.as_("alice", "tokens", "list")
    assert "this takes the role admin: sales, signed in by certificate, has the role submitter" in forbidden.stderr
    encrypted.admin("tokens", "revoke", "sales")
    for url in encrypted.urls:
        reached(lambda url=url: encrypted.as_("alice", "list", url=url).returncode == 1, f"{url} has heard of it")  # type: ignore[misc]

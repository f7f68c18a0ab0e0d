"""R48 with real processes: tokens are made, used and revoked, with two JobManagers and a takeover."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

PROGRAM = "import sys\nprint('hello of', sys.argv[1])\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptCluster]:
    secrets = tmp_path_factory.mktemp("secrets")
    (secrets / "team-a").mkdir()
    (secrets / "SHARED").write_text("for all")
    (secrets / "team-a" / "KEY").write_text("of a")
    options = {
        "high-availability.type": "etcd",
        "taskmanager.spark.enabled": "false",
        "taskmanager.secrets.directory": str(secrets),
    }
    with ScriptCluster(options, masters=2, job_masters=1) as made:
        yield made


def as_(
    cluster: ScriptCluster, token: str, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The command line with the token of a person."""
    before = cluster.environment
    cluster.environment = {**before, "FLINKLIKE_TOKEN": token}
    try:
        return cluster.cli(*arguments, timeout=120, cwd=cwd)
    finally:
        cluster.environment = before


def listed_by(cluster: ScriptCluster, token: str) -> list[dict[str, str]]:
    listed: list[dict[str, str]] = json.loads(as_(cluster, token, "list", "--json").stdout)["jobs"]
    return listed


def new_token(cluster: ScriptCluster, name: str, *options: str) -> str:
    made = cluster.cli("tokens", "create", name, *options)
    assert made.returncode == 0, made.stderr
    role = options[options.index("--role") + 1]
    assert made.stderr.startswith(f"{name}: role {role}, "), made.stderr
    assert made.stderr.count("\n") == 1
    return made.stdout.strip()


def asked(url: str, token: str, path: str = "/principal") -> httpx.Response:
    return httpx.get(url + path, headers={"authorization": f"Bearer {token}"}, timeout=30)


def signs_in(url: str, token: str) -> bool | None:
    """None: the cluster cannot tell now."""
    status = asked(url, token).status_code
    return None if status == 503 else status == 200


def test_a_job_gets_secrets_of_its_namespace_and_those_for_all(cluster: ScriptCluster, tmp_path: Path) -> None:
    program = tmp_path / "secrets.py"
    program.write_text("from airflow_flinklike import task_secrets\nprint('got', *sorted(task_secrets().values()))\n")
    asks = ("run", "--secret", "SHARED", "--secret", "KEY", str(program))
    found = {}
    for team in ("a", "b"):
        token = new_token(cluster, f"secret-{team}", "--role", "submitter", "--namespace", f"team-{team}")
        found[team] = as_(cluster, token, *asks)
    assert "got for all of a" in found["a"].stdout, found["a"].stderr
    assert found["b"].returncode != 0
    assert "there is no file" in found["b"].stderr + found["b"].stdout
    assert "of a" not in found["b"].stdout


def test_what_each_may_do_with_its_token(cluster: ScriptCluster, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(PROGRAM)
    sam = new_token(cluster, "sam", "--role", "submitter", "--namespace", "team-a", "--expires", "1d")
    sue = new_token(cluster, "sue", "--role", "submitter", "--namespace", "team-a")
    bea = new_token(cluster, "bea", "--role", "operator", "--namespace", "team-b")
    job = "5" * 32
    for url in cluster.urls:
        reached(lambda url=url: signs_in(url, sam), f"{url} knows sam")  # type: ignore[misc]
    done = as_(cluster, sam, "run", "--job-id", job, "hello.py", "sam", cwd=tmp_path)
    assert (done.returncode, "hello of sam" in done.stdout) == (0, True), done.stderr
    (listed,) = [one for one in listed_by(cluster, sue) if one["jid"] == job]
    assert (listed["jid"], listed["submitter"], listed["namespace"]) == (job, "sam", "team-a")
    assert {one["namespace"] for one in listed_by(cluster, bea)} <= {"team-b"}
    for arguments in (("status", job), ("logs", job), ("cancel", job), ("info", job)):
        refused = as_(cluster, bea, *arguments)
        assert (refused.returncode, "not found" in refused.stderr) == (1, True), (arguments, refused.stderr)
    guessed = as_(cluster, sue, "run", "-d", "--job-id", job, "hello.py", "sam", cwd=tmp_path)
    assert (guessed.returncode, "somebody else" in guessed.stderr) == (1, True), guessed.stderr
    foreign = as_(cluster, sam, "run", "-d", "--namespace", "team-b", "hello.py", "sam", cwd=tmp_path)
    assert (foreign.returncode, "submits into the namespace team-a" in foreign.stderr) == (1, True), foreign.stderr
    forbidden = as_(cluster, sam, "tokens", "create", "eve", "--role", "admin")
    assert (forbidden.returncode, "this takes the role admin" in forbidden.stderr) == (1, True), forbidden.stderr
    again = as_(cluster, sam, "run", "-d", "--job-id", job, "hello.py", "sam", cwd=tmp_path)
    assert (again.returncode, "before" in again.stdout) == (0, True), again.stderr
    told = (cluster.run / "run").rglob("*")
    kept = [path for path in told if path.is_file() and sam.encode() in path.read_bytes()]
    assert kept == [], "nothing of the cluster keeps a token"


def audited(cluster: ScriptCluster) -> list[dict[str, str]]:
    """All lines of all JobManagers."""
    files = sorted((cluster.run / "run" / "log").glob("audit-*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text(encoding="ascii").splitlines()]


def test_who_did_what_is_written_down(cluster: ScriptCluster) -> None:
    token = new_token(cluster, "tess", "--role", "viewer")
    for url in cluster.urls:
        reached(lambda url=url: signs_in(url, token), f"{url} knows her")  # type: ignore[misc]
    shown = {"authorization": f"Bearer {token}", "x-forwarded-for": "9.9.9.9"}
    refused = httpx.patch(f"{cluster.url}/jobs/{'6' * 32}", headers=shown, timeout=30)
    assert (refused.status_code, "this takes the role submitter" in refused.text) == (403, True), refused.text
    told = [(one["principal"], one["action"], one.get("object"), one["outcome"]) for one in audited(cluster)]
    assert ("admin", "create-token", "tess", "done") in told
    (given,) = [one for one in audited(cluster) if one.get("object") == "tess" and one["action"] == "create-token"]
    assert (given["granted_role"], given["granted_namespace"]) == ("viewer", "*")
    assert ("tess", "sign-in", "", "done") in told
    assert any(line[:2] + line[3:] == ("tess", "cancel", "refused") for line in told), told
    assert not [one for one in audited(cluster) if "9.9.9.9" in one["address"]], "nobody says himself where he is"
    modes = {path.stat().st_mode & 0o777 for path in (cluster.run / "run" / "log").glob("audit-*.jsonl")}
    assert modes == {0o600}


def test_a_revoked_token_opens_nothing_not_even_after_a_takeover(cluster: ScriptCluster) -> None:
    token = new_token(cluster, "tim", "--role", "viewer")
    kept = new_token(cluster, "tom", "--role", "viewer")
    for url in cluster.urls:
        reached(lambda url=url: signs_in(url, token) and signs_in(url, kept), f"{url} knows both")  # type: ignore[misc]
    leader = json.loads(cluster.cli("taskmanagers", "--json").stdout) and asked(cluster.url, kept, "/overview").json()
    number = next(n for n, url in enumerate(cluster.urls) if url.endswith(leader["leader"].rpartition(":")[2]))
    pids, of_admin = cluster.pids()["jobmanager"], {"authorization": f"Bearer {cluster.token}"}
    os.kill(pids[1 - number], signal.SIGSTOP)  # it hears of nothing that is done now
    try:
        revoked = httpx.delete(cluster.urls[number] + "/tokens/tim", headers=of_admin, timeout=30)
        assert revoked.status_code == 200, revoked.text
        refused = asked(cluster.urls[number], token)
        assert (refused.status_code, "has ended, or was revoked" in refused.text) == (401, True), "the leader, at once"
        os.kill(pids[number], signal.SIGKILL)
    finally:
        os.kill(pids[1 - number], signal.SIGCONT)
    other = cluster.urls[1 - number]
    reached(lambda: asked(other, kept, "/overview").status_code == 200, "another one leads", timeout=60)
    assert signs_in(other, token) is False
    assert signs_in(other, kept) is True

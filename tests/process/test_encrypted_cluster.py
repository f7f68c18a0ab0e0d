"""R46, R47 with real processes: what is wrong is a line on each side, and certificates change while they run."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from tests.kit.cluster.cluster_certificates import ClusterCertificates
from tests.kit.cluster.job_managers import job_managers
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.services.certificates import Made

pytestmark = [pytest.mark.process, pytest.mark.etcd]

PROGRAM = "import sys, time\ntime.sleep(float(sys.argv[1]))\nprint('done')\n"
PATIENT = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
print('went on')
"""
OPTIONS = {
    "high-availability.type": "etcd",
    "taskmanager.spark.enabled": "false",
    "taskmanager.registration.timeout": "20 s",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    made = ScriptCluster(OPTIONS, masters=2, job_masters=1)
    made.encrypt()
    with made:
        yield made


def run(cluster: ScriptCluster, tmp_path: Path) -> None:
    """One job, by the command line, which finds address, CA and certificate by itself."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = cluster.cli("run", str(program), "0")
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout


def test_a_job_runs_by_each_job_manager(cluster: ScriptCluster, tmp_path: Path) -> None:
    before = cluster.environment
    try:
        for url in cluster.urls:
            cluster.environment = {**before, "FLINKLIKE_ADDRESS": url}
            run(cluster, tmp_path)
    finally:
        cluster.environment = before
    assert len(job_managers(cluster)) == 2


def logged(cluster: ScriptCluster, words: str, name: str = "jobmanager") -> bool:
    logs = (cluster.run / "run" / "log").glob(f"flinklike-*{name}*.log")
    return any(words in path.read_text() for path in logs)


def asked_with(cluster: ScriptCluster, **variables: str) -> subprocess.CompletedProcess[str]:
    before = cluster.environment
    cluster.environment = {**before, **variables}
    try:
        return cluster.cli("list", timeout=120)
    finally:
        cluster.environment = before


def test_what_is_wrong_with_rest_is_one_line_on_each_side(
    cluster: ScriptCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert cluster.certificates is not None
    strangers = ClusterCertificates.new(tmp_path_factory.mktemp("strangers") / "certs")
    other_ca, other_client = strangers.of_client().ca, strangers.of_client().cert
    plain = cluster.url.replace("https://", "http://")
    for variables, sentence, line in (
        ({"FLINKLIKE_CA": str(other_ca)}, "its certificate is of no CA that is trusted here", "it trusts another CA"),
        (
            {"FLINKLIKE_CERT": other_client},
            "it does not accept our certificate: it is of no CA in its security.ssl.rest.ca",
            "its certificate is not accepted: unable to get local issuer certificate",
        ),
        ({"FLINKLIKE_ADDRESS": plain}, "This port speaks TLS: ask it by https://", "it speaks none, and security.ssl"),
    ):
        done = asked_with(cluster, **variables)
        assert done.returncode == 1
        assert sentence in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        reached(partial(logged, cluster, line), line)
    trusting = ssl.create_default_context(cafile=cluster.certificates.directory / "rest-ca.pem")
    with (
        httpx.Client(verify=trusting, trust_env=False) as client,
        pytest.raises(httpx.NetworkError, match="certificate required"),
    ):
        client.get(f"{cluster.url}/overview")
    reached(lambda: logged(cluster, "it shows no certificate, and security.ssl.rest.authentication-enabled"), "told")


@pytest.mark.parametrize("wrong", ["another CA", "plain text"])
def test_a_process_that_is_not_let_in_says_why_and_so_do_those_it_asks(
    cluster: ScriptCluster, wrong: str, tmp_path: Path
) -> None:
    """It ends after taskmanager.registration.timeout; the cluster goes on."""
    if wrong == "another CA":
        strangers = ClusterCertificates.new(tmp_path / "certs")
        options, words = strangers.of_link("internal"), "its certificate is of no CA in security.ssl.internal.ca"
    else:
        options = {f"security.ssl.internal.{name}": "" for name in ("cert", "key", "ca")}
        options["security.ssl.internal.enabled"] = "false"
        words = "the two differ in security.ssl.internal.enabled"
    dynamic = [argument for key, value in options.items() for argument in ("-D", f"{key}={value}")]
    started = cluster.script("taskmanager.sh", "start", *cluster.dynamic, *dynamic)
    assert started.returncode != 0
    assert words in started.stderr
    reached(lambda: logged(cluster, words, "taskmanager"), words)
    reached(lambda: logged(cluster, "ended before they had shown the cluster's token"), "those it asks say so")
    run(cluster, tmp_path)


def test_an_own_certificate_that_has_ended_keeps_a_process_from_starting(
    cluster: ScriptCluster, tmp_path: Path
) -> None:
    ended = tmp_path / "ended.pem"
    ended.write_bytes(Made.new().shown(now=datetime.now(UTC) - timedelta(days=10)).pem)
    ended.chmod(0o600)
    options = {f"security.ssl.internal.{name}": str(ended) for name in ("cert", "key")}
    dynamic = [argument for key, value in options.items() for argument in ("-D", f"{key}={value}")]
    started = cluster.script("taskmanager.sh", "start", *cluster.dynamic, *dynamic)
    assert started.returncode != 0
    assert f"security.ssl.internal.cert: the certificate in {ended} has expired on" in started.stderr


@pytest.mark.parametrize(
    ("script", "link"), [("start-jobmaster.sh", "internal"), ("taskmanager.sh", "internal"), ("jobmanager.sh", "rest")]
)
def test_a_certificate_of_another_host_or_ca_keeps_a_process_from_starting(
    cluster: ScriptCluster, script: str, link: str, tmp_path: Path
) -> None:
    """At its start a person can mend it; later each peer would refuse it, in its own log."""
    assert cluster.certificates is not None
    cluster.certificates.folder().issue(link, [f"other-{script}"])
    other_host = cluster.certificates.directory / f"{link}-other-{script}.pem"
    other_ca = ClusterCertificates.new(tmp_path / "certs").directory / f"{link}-node.pem"
    for file, words in ((other_host, f"it names other-{script}"), (other_ca, "unable to get local issuer certificate")):
        options = {f"security.ssl.{link}.{name}": str(file) for name in ("cert", "key")}
        dynamic = [argument for key, value in options.items() for argument in ("-D", f"{key}={value}")]
        started = cluster.script(script, "start", *cluster.dynamic, *dynamic)
        assert started.returncode != 0
        assert f"security.ssl.{link}.cert: others would not accept the certificate in {file}" in started.stderr
        assert words in started.stderr


def shows(url: str, certificates: ClusterCertificates, serial: int) -> bool:
    """Does REST show a new connection the certificate of that number?"""
    host, _, port = url.removeprefix("https://").partition(":")
    try:
        with (
            socket.create_connection((host, int(port)), 20) as raw,
            certificates.context().wrap_socket(raw, server_hostname=host) as tls,
        ):
            certificate = tls.getpeercert(binary_form=True)
    except ssl.SSLError:
        return False
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number == serial


def test_certificates_and_cas_change_while_a_job_runs(cluster: ScriptCluster, tmp_path: Path) -> None:
    """Both CAs are trusted, new certificates are shown, the CAs before are forgotten; nothing is started again."""
    certificates = cluster.certificates
    assert certificates is not None
    pids = cluster.pids()
    program, go = tmp_path / "patient.py", tmp_path / "go"
    program.write_text(PATIENT)
    command = [str(ROOT / "bin" / "flinklike"), "run", str(program), str(go)]
    job = subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for change in (certificates.renew_authorities, certificates.renew, certificates.forget_old_authorities):
            change()
            for url in cluster.urls:
                expected = certificates.serial("rest")
                reached(partial(shows, url, certificates, expected), f"{url} shows it")
            run(cluster, tmp_path)
        cluster.start_task_manager()  # with new certificates only: no process trusts the earlier ones
        assert {role: found for role, found in cluster.pids().items() if role != "taskmanager"} == {
            role: found for role, found in pids.items() if role != "taskmanager"
        }
        go.touch()
        out, err = job.communicate(timeout=120)
    finally:
        job.kill()
        job.wait()
    assert job.returncode == 0, err
    assert "went on" in out

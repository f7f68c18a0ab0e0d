"""Every process of a real cluster serves its metrics, the leader lists them, and the numbers are those of the jobs."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.metrics.metric import MetricKind, Owner
from runtime.metrics.table import TABLE
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.script_cluster import ScriptCluster, free_port
from tests.kit.docs import ROOT
from tests.kit.host.levels import reached
from tests.process.conftest import WITHOUT_SPARK

pytest.importorskip("prometheus_client", reason="pip install -r requirements/metrics.txt")

from prometheus_client.parser import text_string_to_metric_families

pytestmark = [pytest.mark.process, pytest.mark.slow]

NO_OP = job_graph("no-op", "tests.benchmarks.programs:no_op")
NAP = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": 3600})
BROKEN = job_graph("broken", "tests.benchmarks.programs:nothing_of_that_name")
ON = {**WITHOUT_SPARK, "metrics.reporters": "prometheus"}
OWNERS = {"jobmanager": Owner.JOB_MANAGER, "jobmaster": Owner.JOB_MASTERS, "taskmanager": Owner.TASK_MANAGER}

Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    """Two jobs have finished in it, one has failed."""
    with ScriptCluster(ON) as made:
        with made.connect() as client:
            for number, graph in enumerate((NO_OP, NO_OP, BROKEN)):
                job_id = JobId(f"{number + 1:032x}")
                client.submit(graph, job_id=job_id)
                client.wait_for_result(job_id)
        yield made


def targets(cluster: ScriptCluster) -> list[tuple[str, str]]:
    """Kind and address of each."""
    request = urllib.request.Request(
        f"{cluster.url}/metrics/targets", headers={"authorization": f"Bearer {cluster.token}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return [(one["labels"]["process"], address) for one in found for address in one["targets"]]


def text(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        told: str = answer.read().decode()
    return told


def series(address: str) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text(address))
        for sample in family.samples
    }


def total(found: Series, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(value for (one, has), value in found.items() if one == name and wanted <= has)


def all_of(cluster: ScriptCluster, kind: str) -> list[Series]:
    return [series(address) for one, address in targets(cluster) if one == kind]


def test_the_leader_lists_every_process(cluster: ScriptCluster) -> None:
    found = targets(cluster)
    assert sorted(kind for kind, _ in found) == ["jobmanager", "jobmaster", "jobmaster", "taskmanager"]
    assert len({address for _, address in found}) == 4
    assert all(address.startswith("127.0.0.1:") for _, address in found), "on loopback, unless configured"


def test_each_has_what_the_table_says(cluster: ScriptCluster) -> None:
    gauges = {metric.name: metric.owner for metric in TABLE if metric.kind is MetricKind.GAUGE}
    for kind, address in targets(cluster):
        told = text(address)
        names = {name for name, _ in series(address)}
        assert f'component="{kind}"' in told
        for name, owner in gauges.items():
            if owner in {Owner.EACH, OWNERS[kind]} and not any(part in name for part in ("spark", "stream", "user")):
                assert name in names, (kind, name)
            elif owner not in {Owner.EACH, OWNERS[kind]}:
                assert name not in names, (kind, name)
        assert "flinklike_event_loop_lag_seconds_bucket" in names
        assert cluster.token not in told
        assert "flinklike_metrics_reader_failures_total" not in names


def test_no_id_and_no_name_of_a_job_is_told(cluster: ScriptCluster) -> None:
    for _, address in targets(cluster):
        told = text(address)
        assert "no-op" not in told
        assert f"{1:032x}" not in told


def test_numbers_are_those_of_the_jobs(cluster: ScriptCluster) -> None:
    (job_manager,) = all_of(cluster, "jobmanager")
    assert total(job_manager, "flinklike_jobmanager_is_leader") == 1
    assert total(job_manager, "flinklike_job_submits_total", outcome="accepted") == 3
    assert total(job_manager, "flinklike_job_submit_seconds_count") == 3
    assert total(job_manager, "flinklike_jobs_ended_total", state="FINISHED") == 2
    assert total(job_manager, "flinklike_jobs_ended_total", state="FAILED") == 1
    assert total(job_manager, "flinklike_jobs", state="FINISHED") == 2
    assert total(job_manager, "flinklike_task_slots") == 2
    assert total(job_manager, "flinklike_registered_jobmasters", state="ready") == 2
    assert total(job_manager, "flinklike_store_transactions_total", kind="graph", outcome="done") == 3
    assert total(job_manager, "flinklike_jobs_waiting") == 0

    def results() -> float:
        owners = all_of(cluster, "jobmaster")
        return sum(total(one, "flinklike_store_transactions_total", kind="result", outcome="done") for one in owners)

    assert results() == 3
    (task_manager,) = all_of(cluster, "taskmanager")
    assert total(task_manager, "flinklike_taskmanager_tasks_started_total") == 3
    assert total(task_manager, "flinklike_taskmanager_task_seconds_count", outcome="FINISHED") == 2
    assert total(task_manager, "flinklike_taskmanager_tasks_failed_total", kind="USER") == 1
    assert total(task_manager, "flinklike_rpc_streams", kind="TASK_MANAGER_TO_RESOURCE_MANAGER") == 1


def test_a_job_that_waits_is_told_with_its_reason(cluster: ScriptCluster) -> None:
    jobs = [JobId(f"{number:032x}") for number in (7, 8, 9)]
    with cluster.connect() as client:
        for job_id in jobs:
            client.submit(NAP, job_id=job_id)
        try:
            reached(lambda: waiting_for_slots(cluster) == 1, "a job that waits for slots")
            reached(lambda: active(cluster) == 2, "both slots are taken")  # a text is as old as a second
            reached(
                lambda: total(all_of(cluster, "taskmanager")[0], "flinklike_taskmanager_slot_memory_bytes") > 0,
                "a slot's memory",
            )
        finally:
            for job_id in jobs:
                client.cancel(job_id)
            for job_id in jobs:
                client.wait_for_result(job_id)


def active(cluster: ScriptCluster) -> float:
    (task_manager,) = all_of(cluster, "taskmanager")
    return total(task_manager, "flinklike_taskmanager_slots", state="ACTIVE")


def waiting_for_slots(cluster: ScriptCluster) -> float:
    (job_manager,) = all_of(cluster, "jobmanager")
    return total(job_manager, "flinklike_jobs_waiting", reason="slots")


def test_who_does_not_sign_in_reads_neither_by_rest(cluster: ScriptCluster) -> None:
    for path in ("/metrics", "/metrics/targets"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(cluster.url + path, timeout=30)
        with refused.value:
            assert refused.value.code == 401


def test_a_process_that_is_killed_leaves_the_list() -> None:
    ports = free_port()
    options = {**ON, "metrics.prometheus.port": f"{ports}-{ports + 40}"}
    with ScriptCluster(options, masters=2, job_masters=1) as cluster:
        reached(lambda: len(targets(cluster)) == 4, "the stand-by is listed too")
        leads = [total(one, "flinklike_jobmanager_is_leader") for one in all_of(cluster, "jobmanager")]
        assert sorted(leads) == [0, 1]
        assert all(ports <= int(address.rpartition(":")[2]) <= ports + 40 for _, address in targets(cluster))
        done = cluster.script("taskmanager.sh", "stop", *cluster.dynamic)
        assert done.returncode == 0, done.stderr
        reached(lambda: [kind for kind, _ in targets(cluster)].count("taskmanager") == 0, "the TaskManager is gone")


PROMETHEUS = shutil.which("prometheus")


@pytest.mark.extended
@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus (Debian: prometheus) is not installed")
def test_a_real_prometheus_finds_and_scrapes_all(cluster: ScriptCluster, tmp_path: Path) -> None:
    assert PROMETHEUS is not None
    for file in ("prometheus.yml", "alerts.yml"):
        shutil.copy(ROOT / "conf/prometheus" / file, tmp_path)
    configuration = tmp_path / "prometheus.yml"
    shown = configuration.read_text()
    assert "http://127.0.0.1:8081/" in shown
    configuration.write_text(
        shown.replace("http://127.0.0.1:8081/", f"{cluster.url}/")
        .replace("/etc/prometheus/flinklike-token", str(cluster.run / "run" / "token"))
        .replace("15s", "1s")
    )
    port = free_port()
    arguments = [f"--config.file={configuration}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [PROMETHEUS, *arguments, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
        )
        try:
            asked = _asker(port)
            reached(lambda: len(asked("up == 1")) == 4, "four processes are scraped")
            assert {one["metric"]["process"] for one in asked("up")} == {"jobmanager", "jobmaster", "taskmanager"}
            assert _value(asked("sum(flinklike_jobs_ended_total)")) >= 3
            assert _value(asked("max(flinklike_task_slots)")) == 2
            p99 = "histogram_quantile(0.99, sum by (le) (flinklike_event_loop_lag_seconds_bucket))"
            assert 0 < _value(asked(p99)) <= 10
            assert {one["metric"]["__name__"] for one in asked('{__name__=~"flinklike_.*", instance=~".+"}')}
            assert asked('ALERTS{alertstate="firing"}') == []
        finally:
            process.terminate()
            process.wait(30)
    assert "level=error" not in (tmp_path / "log").read_text()


def _asker(port: int) -> Callable[[str], list[dict[str, Any]]]:
    def ask(query: str) -> list[dict[str, Any]]:
        url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except OSError:
            time.sleep(0.1)
            return []
        return found

    return ask


def _value(result: list[dict[str, Any]]) -> float:
    (one,) = result
    return float(one["value"][1])

"""Spark's own pages (R58): the JVM makes them when somebody looks, and listens nowhere for it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from runtime.common.errors import NotFoundError, UnavailableError
from runtime.taskexecutor.spark.environment_process import ProcessSparkEnvironment
from tests.kit.spark.spark_box import SparkBox, spark_settings

pytestmark = pytest.mark.timeout(600)  # one JVM per module, and it may have to wait for its turn

ADDRESS = "http://jm-1:8081/ui/taskmanagers/tm-1/spark-ui/default"
SECRET = {"spark.hadoop.fs.azure.account.key.store": "of-the-store", "spark.my.url": "jdbc://ann:of-ann@host/db"}


@pytest.fixture(scope="module")
def pages_box(tmp_path_factory: pytest.TempPathFactory, class_archive: Path | None) -> Iterator[SparkBox]:
    directory = tmp_path_factory.mktemp("spark-pages")
    settings = spark_settings(directory, archive=class_archive, spark_conf=SECRET, ui_address=ADDRESS)
    made = SparkBox(settings, directory)
    made.run(made.environment.start())
    yield made
    made.shut()


@pytest.fixture
def box(pages_box: SparkBox) -> Iterator[SparkBox]:
    yield pages_box
    pages_box.end_slots()


WORKS = """
spark.sparkContext.setJobDescription("<script>window.hostile = 1</script> counts rows")
for number in range(3):
    spark.range(0, 1000, 1, 2).selectExpr("id % 7 as k").groupBy("k").count().collect()
emit(spark.sparkContext.uiWebUrl)
ask()
"""


def look(box: SparkBox, target: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of a page."""
    head, body = box.run(box.environment.page(target, "/view"))
    first, *lines = head.decode("ascii").strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), headers, gzip.decompress(body).decode("utf-8")


def listening(box: SparkBox) -> set[tuple[str, int]]:
    """Where the JVM listens."""
    found = psutil.Process(box.environment.process_ids[1]).net_connections("inet")
    return {(one.laddr.ip, one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN}


def test_the_pages_show_running_jobs_and_the_jvm_listens_nowhere_for_them(box: SparkBox) -> None:
    slot = box.slot(WORKS)
    assert slot.next() == ADDRESS
    before = listening(box)

    status, headers, _ = look(box, "/")
    assert (status, headers["Location"]) == (302, "http://spark/jobs/")
    status, headers, jobs = look(box, "/jobs/")
    assert (status, headers["Content-Type"]) == (200, "text/html;charset=utf-8")
    assert "counts rows" in jobs
    assert "<script>window.hostile" not in jobs
    assert 'href="/view/stages/' in jobs
    assert "collect at" in look(box, "/stages/")[2]
    assert "Physical Plan" in look(box, "/SQL/execution/?id=0")[2]
    application = json.loads(look(box, "/api/v1/applications")[2])[0]["id"]
    told = look(box, f"/api/v1/applications/{application}/environment")[2] + look(box, "/environment/")[2]
    assert "fs.azure.account.key.store" in told
    assert "of-the-store" not in told
    assert "of-ann" not in told
    assert look(box, "/static/webui.js")[1]["Content-Type"].startswith("text/javascript")
    assert listening(box) == before


def test_the_pages_end_no_job_and_stop_no_jvm(box: SparkBox) -> None:
    slot = box.slot(WORKS)
    slot.next()
    assert "kill/?id" not in look(box, "/jobs/")[2]
    assert look(box, "/executors/")[0] == 200
    application = json.loads(look(box, "/api/v1/applications")[2])[0]["id"]
    for target in (
        "/jobs/job/kill/?id=0",
        "/executors/heapHistogram/?executorId=driver",
        "/executors/heap%48istogram/?executorId=driver",
        "/executors//heapHistogram/?executorId=driver",
        "/executors/threadDump/?executorId=driver",
        "/stages/taskThreadDump/?executorId=driver&taskId=0",
        f"/api/v1/applications/{application}/executors/driver/threads",
        "/jobs/ HTTP/1.0\r\nX: y",
    ):
        with pytest.raises(UnavailableError, match="is not shown"):
            look(box, target)


def test_what_cannot_be_looked_at_is_said(box: SparkBox) -> None:
    fresh = ProcessSparkEnvironment(replace(box.environment._settings, has_pages=False))
    with pytest.raises(NotFoundError, match=r"taskmanager\.spark\.ui"):
        box.run(fresh.page("/jobs/", "/view"))
    fresh = ProcessSparkEnvironment(box.environment._settings)
    with pytest.raises(UnavailableError, match="not ready"):
        box.run(fresh.page("/jobs/", "/view"))

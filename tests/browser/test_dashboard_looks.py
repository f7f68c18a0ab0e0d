"""Each page with each kind of job, light and dark, wide and narrow: it shows what it should, and can be read by all."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Cluster, Visits
from tests.kit.rest.board import HOSTILE

pytestmark = pytest.mark.process

TABS = ["graph", "timeline", "subtasks", "exceptions", "logs", "spark", "flamegraph", "accumulators", "configuration"]
LOOKS = ["running", "restarting", "failed", "huge", "waiting", "finished"]
SIZES = [("light", 1280), ("dark", 1280), ("light", 380), ("dark", 380)]


@pytest.mark.parametrize(("scheme", "width"), SIZES)
def test_pages_of_the_cluster(visit: Visits, scheme: str, width: int) -> None:
    person = visit(scheme=scheme, width=width)
    wanted = {
        "ui": [
            "4\nunfinished jobs",
            "1 of 2 used",
            "waits for a slot: 2 of 2 are taken",
            "vault ended with code 1",
            "jm-2:8081",
            "leader-elected",
            "KeyError: 'prise' type=USER",
            "12.0 MiB of 2.0 GiB",
            "It has not answered since",
        ],
        "ui/jobs": ["orders by day", "totals of the night", "RESTARTING", "6 jobs"],
        "ui/jobs?state=FAILED": ["prices", "KeyError: 'prise'", "1 job"],
        "ui/jobs?label=type%3DUSER": ["prices", "1 job"],
        "ui/jobs?label=SYSTEM": ["No job is like that."],
        "ui/taskmanagers": ["tm-1", "1/2", "4.3.0 warm"],
        "ui/taskmanagers/tm-1": ["Slot 0", "Slot 1\nfree", "2.0 GiB", "not enforced here"],
        "ui/jobmasters": ["127.0.0.1:2", "3/1000", "10 %"],
        "ui/jobmasters/" + "b" * 32: ["orders by day", "3 of 1000"],
        "ui/jobmanager": ["jm-1:8081", "rest.port"],
        "ui/submit": ["Upload", "flinklike run etl.py"],
        "ui/jobmanager/leaders": ["leader-elected", "JobManager jm-1 leads"],
        "ui/jobmanager/store": ["12.0 MiB of 2.0 GiB", "etcd-1:2379", "leader", "1.3 ms", "etcd does not answer"],
        "ui/events": ["taskmanager-lost", "TaskManager tm-1 is lost: silent for 9.0 s", "4 events"],
        "ui/events?kind=job-taken-over": ["job orders goes", "1 event"],
        "ui/events/audit": ["cancel", "ann", "refused"],
        "ui/nothing": ["No such page"],
        "ui/jobmanager/logs": ["a line of the log", "flinklike.log (18 B)"],
        "ui/jobmanager/threads": ["MainThread"],
        "ui/jobmanager/environment": ["Python 3.11.0", "/lib"],
        "ui/taskmanagers/tm-1/logs": ["a line of the log"],
        "ui/taskmanagers/tm-1/threads": ["MainThread"],
        "ui/taskmanagers/tm-1/environment": ["Python 3.11.0", "/lib"],
        "ui/jobmasters/" + "b" * 32 + "/logs": ["a line of the log"],
        "ui/jobmasters/" + "b" * 32 + "/environment": ["x86_64"],
    }
    for path, texts in wanted.items():
        person.open(path)
        for text in texts:
            expect(person.page.locator("main")).to_contain_text(text.replace("\n", ""))
        assert person.violations() == [], path
        assert person.overflow() <= 0, path


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 380)])
def test_tabs_of_a_job(visit: Visits, cluster: Cluster, look: str, scheme: str, width: int) -> None:
    person = visit(scheme=scheme, width=width)
    for tab in TABS:
        person.open(f"ui/jobs/{cluster.jobs[look]}/{tab}", ".tab")
        assert person.page.locator(".tabs [aria-current=page]").inner_text().lower().replace(" ", "").startswith(tab)
        assert person.violations() == [], tab
        assert person.overflow() <= 0, tab


@pytest.mark.parametrize(("scheme", "width"), SIZES)
def test_tabs_of_a_streaming_job(visit: Visits, cluster: Cluster, scheme: str, width: int) -> None:
    job = cluster.rest.do(cluster.board.streaming)
    person = visit(scheme=scheme, width=width)
    wanted = {
        "streams": [
            "orders",
            "7,000",
            "100.5",
            "340 ms",
            "4.0 KiB, 12 rows",
            "s behind",
            "none yet",
            "addBatch 300 ms",
        ],
        "checkpoints": ["2completed", "1failed", "1restored", "Checkpoint was declined.", "8.0 KiB", "46", "10.0 s"],
        "rescales": ["2completed", "0failed", "1in progress", "700 ms", "1 to 4", "new resource available", "1 to 3"],
    }
    for tab, texts in wanted.items():
        person.open(f"ui/jobs/{job}/{tab}", ".tab table")
        for text in texts:
            expect(person.page.locator("main")).to_contain_text(text)
        assert person.violations() == [], tab
        assert person.overflow() <= 0, tab


def test_only_a_job_with_queries_has_their_tabs(visit: Visits, cluster: Cluster) -> None:
    job = cluster.rest.do(cluster.board.streaming)
    person = visit()
    person.open(f"ui/jobs/{job}")
    assert "streaming, without an end" in person.text()
    assert [*person.page.locator(".tabs a").all_inner_texts()][:4] == ["Graph", "Streams", "Checkpoints", "Rescales"]
    person.open(f"ui/jobs/{job}/graph?vertex={1:032x}")
    expect(person.page.locator(".tab")).to_contain_text("2 queries, 14 batches, 14,000 rows")
    person.open(f"ui/jobs/{cluster.jobs['running']}")
    assert "Streams" not in person.page.locator(".tabs").inner_text()
    person.open(f"ui/jobs/{cluster.jobs['running']}/streams")
    expect(person.page.locator(".tab")).to_contain_text("This job runs no streaming queries.")
    person.open(f"ui/jobs/{cluster.jobs['running']}/checkpoints")
    expect(person.page.locator(".tab")).to_contain_text("No checkpoints of this job are recorded")
    person.open(f"ui/jobs/{cluster.jobs['running']}/rescales")
    expect(person.page.locator(".tab")).to_contain_text("This job keeps its parallelism")


def test_a_failed_job_says_the_cause_and_the_users_line(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['failed']}/exceptions", ".failure")
    text = person.text()
    assert "KeyError: 'prise'" in text
    assert "/home/team/jobs/daily.py, line 7, in total" in text, "and no line of a library"


def test_texts_of_jobs_are_texts(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['finished']}")
    assert person.page.locator("main h1").inner_text().startswith(HOSTILE)
    assert person.page.locator("main img").count() == 0
    person.open(f"ui/jobs/{cluster.jobs['finished']}/configuration", "td code")
    assert person.page.locator("td code", has_text="onerror").inner_text() == HOSTILE
    person.open("ui/jobs?name=" + "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    assert person.page.locator("main img").count() == 0


def test_the_graph_of_a_huge_job_is_small_and_its_subtasks_come_in_parts(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['huge']}/graph", "svg .vertex")
    assert person.page.locator("svg .vertex").count() == 2
    assert "300/500" in (person.page.locator("svg .vertex").first.text_content() or "")
    person.open(f"ui/jobs/{cluster.jobs['huge']}/subtasks", "tbody tr")
    assert person.page.locator("tbody tr").count() == 101
    person.page.click("text=Show 400 more attempts")
    expect(person.page.locator("tbody tr")).to_have_count(501)


def test_a_log_is_searched_and_filtered(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['running']}/logs", ".line")
    expect(person.page.locator(".line")).to_have_count(9)
    chosen = "[...document.querySelectorAll('select')].map((one) => one.selectedOptions[0]?.text)"
    assert person.page.evaluate(chosen) == ["all", "all"]
    person.page.fill("input[type=search]", "nothing like this")
    expect(person.page.locator(".log")).to_contain_text("No lines.")
    person.open(f"ui/jobs/{cluster.jobs['running']}/logs?subtask=2&vertex={1:032x}&attempt=0", ".line")
    assert person.page.locator(".line").all_inner_texts() == ["hello from the task"]
    person.page.select_option("select >> nth=0", "stderr")
    expect(person.page.locator(".line")).to_have_count(0)
    assert "stream=stderr" in person.page.url

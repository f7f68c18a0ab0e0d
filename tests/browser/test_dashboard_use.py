"""A person works with the dashboard: it is live, asks before it acts, works by keyboard, and outlives its leader."""

from __future__ import annotations

import base64
import re
import time
from datetime import datetime, timedelta
from functools import partial

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

from runtime.common.ids import JobId
from runtime.common.shares import QueueSettings, QueueStatus
from runtime.common.states import JobStatus
from runtime.gateways.cluster_events import EventKind
from runtime.gateways.process import ThreadDumpRequest
from runtime.gateways.task_executor import CLUSTER_FRAME, SampledStack
from tests.browser.conftest import Cluster, Visits
from tests.kit.browser.visit import Visit
from tests.kit.host.levels import reached
from tests.kit.rest.board import many
from tests.kit.rest.fakes import JOB, FakeTaskExecutor
from tests.kit.rest.server import TOKEN

pytestmark = pytest.mark.process


def test_what_changes_is_shown_without_a_reload(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['running']}")
    person.page.evaluate("window.isTheSame = true")
    cluster.rest.do(lambda: cluster.board.end(cluster.jobs["running"], JobStatus.FINISHED))
    expect(person.page.locator("main h1 .state")).to_have_text("FINISHED")
    assert person.page.evaluate("window.isTheSame")
    expect(person.page.locator("text=Cancel job")).to_have_count(0)


def test_an_action_says_what_it_does_asks_once_and_tells_what_came_of_it(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['running']}")
    person.page.click("text=Cancel job")
    dialog = person.page.locator("dialog")
    expect(dialog).to_contain_text("This cannot be undone.")
    person.page.click("dialog >> text=Back")
    expect(dialog).to_have_count(0)
    assert cluster.rest.dispatcher.cancelled == []
    person.page.click("text=Cancel job")
    person.page.click("dialog >> text=Cancel the job")
    expect(person.page.locator(".toast")).to_contain_text("is being cancelled")
    expect(person.page.locator("main h1 .state")).to_have_text("CANCELED")
    assert cluster.rest.dispatcher.cancelled == [cluster.jobs["running"]]


def test_the_overview_shows_how_slots_are_shared(visit: Visits, cluster: Cluster) -> None:
    person, manager = visit(), cluster.rest.fakes.resource_manager
    person.open("ui")
    expect(person.page.locator("h2:text-is('Unfinished jobs')")).to_have_count(1)
    expect(person.page.locator("h2:text-is('Queues')")).to_have_count(0)
    limits = QueueSettings(weight=3, min_slots=4, max_slots=8)
    manager.queue_statuses = [
        QueueStatus("sam", QueueSettings(), 1, 4 / 3, 1, 7),
        QueueStatus("etl", limits, 0, 3.0, 0, 12),
    ]
    person.open("ui")
    rows = person.page.locator("[aria-label=Queues] tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_have_text("sam11.333171")
    expect(rows.nth(1).locator("td")).to_have_text(["etl", "0", "3", "0", "12", "3", "4", "8"])
    expect(person.page.locator("text=the queues have 4 min-slots in all, and there are 2 slots")).to_have_count(1)
    manager.queue_statuses = ()


def test_what_fails_is_told_where_it_was_asked(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.expected = ("409",)
    person.open(f"ui/jobs/{cluster.jobs['failed']}")
    expect(person.page.locator("text=Cancel job")).to_have_count(0)
    person.open(f"ui/jobs/{cluster.jobs['running']}")
    person.page.click("text=Cancel job")
    cluster.rest.do(lambda: cluster.rest.dispatcher.put(cluster.jobs["running"], JobStatus.FAILED))
    person.page.click("dialog >> text=Cancel the job")
    expect(person.page.locator("dialog [role=alert]")).to_contain_text("already reached another terminal state")


def test_an_event_is_shown_when_it_happens_and_can_be_searched(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open("ui/events")
    rows = person.page.locator("tbody tr")
    expect(rows).to_have_count(4)
    cluster.rest.do(lambda: cluster.rest.fakes.events.tell(EventKind.STORE_FULL, "the store is nearly full"))
    expect(rows.first).to_contain_text("store-full")
    person.page.locator("input[type=search]").press_sequentially("silent")
    expect(rows).to_have_count(1)
    assert person.page.url.endswith("ui/events?search=silent")
    person.page.click(".tabs >> text=Audit log")
    expect(person.page.locator("tbody")).to_contain_text("another's")
    person.page.go_back()
    expect(rows).to_have_count(1)


def test_processes_are_drained_and_jobs_are_moved(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open("ui/taskmanagers")
    person.page.click("button:text('Drain')")
    person.page.click("dialog >> button:text('Drain')")
    expect(person.page.locator("tbody .state")).to_have_text("draining")
    person.open("ui/jobmasters")
    person.page.click("button:text('Drain')")
    person.page.click("dialog >> button:text('Drain')")
    expect(person.page.locator("tbody .state")).to_have_text("draining")
    assert cluster.rest.dispatcher.is_draining
    person.open(f"ui/jobs/{cluster.jobs['running']}")
    person.page.click("text=Move")
    expect(person.page.locator(".waiting")).to_contain_text("Where shall orders by day go?")
    expect(person.page.locator("tbody")).to_contain_text("it is here")


def test_the_keyboard_is_enough(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['running']}", "svg .vertex")
    person.page.locator("svg .vertex").nth(2).focus()
    person.page.keyboard.press("Enter")
    expect(person.page.locator("ol.chain li")).to_have_count(3)
    assert "vertex=" in person.page.url
    person.page.locator("text=Cancel job").focus()
    person.page.keyboard.press("Enter")
    expect(person.page.locator("dialog")).to_have_count(1)
    person.page.keyboard.press("Escape")
    expect(person.page.locator("dialog")).to_have_count(0)
    person.page.keyboard.press("Home")
    person.page.locator(".skip").focus()
    person.page.keyboard.press("Enter")
    assert person.page.evaluate("document.activeElement.id") == "main"


def test_each_state_has_an_address_and_back_works(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open("ui/jobs")
    person.page.select_option("select >> nth=0", "FAILED")
    expect(person.page.locator("tbody tr")).to_have_count(1)
    assert person.page.url.endswith("ui/jobs?state=FAILED")
    person.page.click("tbody a")
    expect(person.page.locator("main h1")).to_contain_text("prices")
    person.page.click(".tabs >> text=Timeline")
    expect(person.page.locator("canvas")).to_have_count(1)
    person.page.go_back()
    person.page.go_back()
    expect(person.page.locator("tbody tr")).to_have_count(1)
    person.page.reload()
    expect(person.page.locator("tbody tr")).to_have_count(1)


def test_jobs_are_found_by_day_and_by_the_label_of_their_failure(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open("ui")
    person.page.click("a.label >> text=type=USER")
    rows = person.page.locator("tbody tr")
    expect(rows).to_have_count(1)
    assert person.page.url.endswith("ui/jobs?label=type%3DUSER")
    person.page.fill("input[list=labels]", "type=SYSTEM")
    person.page.keyboard.press("Enter")
    expect(person.page.locator("main")).to_contain_text("No job is like that.")
    person.page.click("text=Show all")
    expect(rows).to_have_count(6)
    person.page.fill("input[type=date] >> nth=0", "2100-01-01")
    expect(person.page.locator("main")).to_contain_text("No job is like that.")
    assert "since=4102" in person.page.url
    person.page.go_back()
    expect(rows).to_have_count(6)


def test_what_the_code_counts_is_shown_of_the_job_and_of_each_subtask(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['running']}/accumulators")
    rows = person.page.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.filter(has_text="orders read")).to_contain_text("1,204,311")
    expect(rows.filter(has_text="seconds of a file")).to_contain_text("48 values, mean 1.27708, from 0.4 to 7.25")
    person.page.select_option("form.filters select", label="read orders")
    expect(rows).to_have_count(3 + 4 * 3)
    person.open(f"ui/jobs/{cluster.jobs['failed']}/accumulators")
    expect(person.page.locator("main")).to_contain_text("ctx.counter(name).add(n)")


def test_spark_of_a_job_and_of_a_task_manager_is_shown(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['running']}/spark")
    expect(person.page.locator("h2").first).to_contain_text("read orders 0")
    expect(person.page.locator("tbody tr").first).to_contain_text("collect at daily.py:7")
    expect(person.page.locator("main")).to_contain_text("2.0 MiB")
    person.open("ui/taskmanagers/tm-1")
    expect(person.page.locator(".slots")).to_contain_text("300 MiB of 1.0 GiB")
    flames = person.page.locator(".slots a >> text=flame graph")
    expect(flames).to_have_attribute("href", f"ui/jobs/{JOB}/flamegraph?vertex={1:032x}&subtask=0")
    person.page.click(".tabs >> text=Spark")
    expect(person.page.locator("main")).to_contain_text("200 MiB of 768 MiB")
    person.page.click("summary >> text=Spark conf")
    expect(person.page.locator("main")).to_contain_text("******")


def test_a_timeline_is_shown_without_the_stages_of_spark(visit: Visits, cluster: Cluster) -> None:
    """What Spark does takes a question to each JVM: without an answer there was no timeline at all."""
    person = visit()
    person.expected = ("503",)
    person.page.route("**/jobs/*/spark", lambda asked: asked.fulfill(status=503, json={"errors": ["they are away"]}))
    person.open(f"ui/jobs/{cluster.jobs['running']}/timeline", "canvas")
    expect(person.page.locator(".problem")).to_have_text("The stages of Spark are not known: they are away")


def test_a_flame_graph_folds_the_threads_of_the_cluster_and_shortens_paths(visit: Visits, cluster: Cluster) -> None:
    executor = cluster.rest.fakes.task_executor
    assert isinstance(executor, FakeTaskExecutor)
    own, ours = "total (/run/jobs/0123/code/daily.py:7)", "wait (/usr/lib/python3.11/threading.py:320)"
    executor.stacks = (SampledStack((CLUSTER_FRAME, ours), 3, is_on_cpu=False), SampledStack((own,), 1, is_on_cpu=True))
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['running']}/flamegraph")
    person.page.select_option("form.filters select >> nth=0", label="join and price")
    expect(person.page.locator("ol.innermost li")).to_have_text(["total (code/daily.py:7) 25 %"])
    expect(person.page.locator("ol.innermost li")).to_have_attribute("title", own)
    executor.stacks = ()


def test_a_flame_graph_is_taken_when_a_person_asks(visit: Visits, cluster: Cluster) -> None:
    executor = cluster.rest.fakes.task_executor
    assert isinstance(executor, FakeTaskExecutor)
    inner, outer = ("main (a.py:1)", "total (a.py:7)"), ("main (a.py:1)",)
    executor.stacks = (SampledStack(inner, 3, is_on_cpu=True), SampledStack(outer, 1, is_on_cpu=False))
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['running']}/flamegraph")
    assert executor.sampled == []
    person.page.select_option("form.filters select >> nth=0", label="join and price")
    expect(person.page.locator("canvas")).to_have_count(1)
    expect(person.page.locator("ol li").first).to_contain_text("total (a.py:7) 75 %")
    looked = len(executor.sampled)
    person.page.wait_for_timeout(500)
    assert len(executor.sampled) == looked == 1
    person.page.click("text=Look again")
    expect(person.page.locator("canvas")).to_have_count(1)
    person.page.wait_for_timeout(500)
    assert len(executor.sampled) == 2


def test_typing_in_the_search_is_not_disturbed_by_news(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open("ui/jobs")
    person.page.locator("input[type=search]").press_sequentially("ord")
    cluster.rest.do(lambda: cluster.board.end(cluster.jobs["huge"], JobStatus.FINISHED))
    person.page.locator("input[type=search]").press_sequentially("ers")
    expect(person.page.locator("tbody tr")).to_have_count(1)
    assert person.page.input_value("input[type=search]") == "orders"
    assert person.page.evaluate("document.activeElement.type") == "search"


def test_ten_thousand_jobs_come_in_pages(visit: Visits, cluster: Cluster) -> None:
    cluster.rest.do(lambda: many(cluster.rest.dispatcher, 10_000, 1_700_000_000_000))
    person = visit()
    person.open("ui/jobs?state=FINISHED", "tbody tr")
    assert person.page.locator("tbody tr").count() == 50
    assert "10,001 jobs" in person.text()
    first = person.page.locator("tbody tr").first.inner_text()
    person.page.click("text=Next page")
    expect(person.page.locator("tbody tr").first).not_to_have_text(first)
    assert person.page.locator("tbody tr").count() == 50


def test_a_hidden_tab_asks_nothing(visit: Visits) -> None:
    person = visit()
    person.open("ui")
    person.hide(hidden=True)
    person.page.wait_for_timeout(1500)
    person.requests.clear()
    person.page.wait_for_timeout(4000)
    assert person.requests == []
    with person.page.expect_response(lambda answer: "/overview" in answer.url):
        person.hide(hidden=False)


@pytest.mark.parametrize(("name", "is_asked_again"), [("running", True), ("failed", False)])
def test_a_job_is_loaded_again_while_its_numbers_move(
    visit: Visits, cluster: Cluster, name: str, is_asked_again: bool
) -> None:
    person, path = visit(), f"/jobs/{cluster.jobs[name]}"
    with person.page.expect_request(lambda asked: "/changes?since=" in asked.url and "since=&" not in asked.url):
        person.open(f"ui{path}")
    person.requests.clear()
    person.page.wait_for_timeout(5000)
    assert any(one.endswith(path) for one in person.requests) is is_asked_again


def test_the_page_waits_for_the_next_leader_and_goes_on(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.expected = ("503",)
    person.open("ui")
    cluster.rest.fakes.is_leading = False
    expect(person.page.locator(".banner")).to_contain_text("ongoing leader election")
    expect(person.page.locator("main h1")).to_have_text("Overview")
    cluster.rest.fakes.is_leading = True
    expect(person.page.locator(".banner")).to_have_count(0)


def test_a_stranger_signs_in_at_the_page_itself_and_out(browser: Browser, cluster: Cluster) -> None:
    person = Visit(browser, cluster.rest.address)
    path = f"ui/jobs/{cluster.jobs['failed']}/exceptions"
    person.sign_in(TOKEN, path)
    expect(person.page.locator("main h1")).to_contain_text("prices")
    assert person.page.url.endswith(path)
    assert TOKEN not in person.page.content()
    assert person.page.evaluate("document.cookie") == "", "no script reads the cookie"
    person.page.click("text=Sign out")
    expect(person.page.locator("input[name=token]")).to_have_count(1)
    person.problems.clear()
    person.open("ui", "input[name=token]")
    person.close()


def test_a_code_opens_the_page_and_leaves_the_address(browser: Browser, cluster: Cluster) -> None:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    for is_again in (False, True):  # as a stranger, and as who has signed in before and lost what the browser kept
        person = Visit(browser, cluster.rest.address)
        person.expected = ("401",)
        if is_again:
            person.sign_in(TOKEN)
            person.page.evaluate("localStorage.clear()")
        code = httpx.post(f"{cluster.rest.address}/ui/codes", headers=bearer).json()["code"]
        person.page.goto(f"{cluster.rest.address}/ui/jobs?state=FAILED#code={code}")
        expect(person.page.locator("tbody tr")).to_have_count(1)
        assert person.page.url.endswith("/ui/jobs?state=FAILED")
        assert not any(code in asked for asked in person.requests), "no server is told the code in an address"
        person.close()


def test_the_log_of_a_process_is_followed_and_stacks_are_taken_when_asked(visit: Visits, cluster: Cluster) -> None:
    person, process = visit(), cluster.rest.fakes.processes["127.0.0.1:1"]
    person.open("ui/taskmanagers/tm-1/logs", ".line")
    process.text += "sp\u00e4ter ERROR it broke\n".encode()
    expect(person.page.locator(".line.bad")).to_have_text("sp\u00e4ter ERROR it broke")
    process.text = b"begun anew\n"
    expect(person.page.locator(".line")).to_have_text(["begun anew"])
    person.page.click(".tabs >> text=Threads")
    expect(person.page.locator("summary")).to_have_text("MainThread")

    def dumps() -> int:
        return sum(isinstance(one, ThreadDumpRequest) for one in process.asked)

    person.page.wait_for_timeout(4000)
    assert dumps() == 1, "what is shown is not taken again by itself"
    person.page.click("text=Take another")
    reached(lambda: dumps() == 2 or None, "another one is taken")


def test_who_may_only_look_finds_no_actions(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.page.route(
        re.compile("/principal$"),
        lambda route: route.fulfill(json={"name": "vera", "role": "viewer", "namespace": "team-a", "via": "token"}),
    )
    person.open(f"ui/jobs/{cluster.jobs['running']}")
    expect(person.page.locator("header")).to_contain_text("vera")
    for action in ("Cancel job", "Move"):
        expect(person.page.locator(f"text={action}")).to_have_count(0)


def test_colours_are_chosen_and_kept(visit: Visits) -> None:
    person = visit()
    person.open("ui")
    for theme in ("light", "dark", "auto"):
        person.page.click(f"button[title*='Change to {theme}']")
        assert person.page.evaluate("document.documentElement.dataset.theme") == theme
        person.page.reload()
        person.page.wait_for_selector("main h1")
        assert person.page.evaluate("document.documentElement.dataset.theme") == theme


def read_log(person: Visit, job: JobId, text: str) -> None:
    """Open the logs of a job, whose first subtask has written that text, and nothing since."""
    log = {"data": base64.b64encode(text.encode()).decode(), "next-offset": len(text), "size": len(text), "dropped": 0}
    attempt = {"vertex": "a", "subtask": 0, "attempt": 0, "ended": False, "missing": "", "logs": {"stdout": log}}
    answers = iter([[attempt]])

    def answer(route: Route) -> None:
        route.fulfill(json={"vertices": [{"id": "a", "name": "v"}], "attempts": next(answers, []), "more": False})

    person.page.route("**/jobs/*/logs", answer)
    person.open(f"ui/jobs/{job}/logs?vertex=a&subtask=0", ".line")


def test_lines_that_a_filter_hid_come_back_in_their_place(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    texts = ["ERROR first", "INFO second", "INFO third", "ERROR fourth"]
    read_log(person, cluster.jobs["running"], "".join(f"{one}\n" for one in texts))
    level = person.page.locator("label:has-text('Level') select")
    level.select_option("ERROR")
    expect(person.page.locator(".line")).to_have_text([texts[0], texts[3]])
    level.select_option("")
    expect(person.page.locator(".line")).to_have_text(texts)


def test_a_carriage_return_writes_over_a_line(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    read_log(person, cluster.jobs["running"], "10 %\r50 %\r100 %\nof windows\r\n" + "x" * 70_000)
    lines = person.page.locator(".line")
    expect(lines).to_have_count(3)
    assert [len(one) for one in lines.all_inner_texts()] == [len("100 %"), len("of windows"), 70_000]


def test_an_address_that_cannot_be_decoded_is_no_page(visit: Visits) -> None:
    person = visit()
    person.open("ui/%zz")
    expect(person.page.locator("main h1")).to_have_text("No such page")


def test_the_figures_of_queries_are_live(visit: Visits, cluster: Cluster) -> None:
    job = cluster.rest.do(cluster.board.streaming)
    person = visit()
    person.open(f"ui/jobs/{job}/streams", ".sparkline")
    expect(person.page.locator(".sparkline").first).to_have_attribute("aria-label", "rows per second processed: 250")
    for batch in (42, 43):
        cluster.rest.do(partial(cluster.board.goes_on, job, batch))
        expect(person.page.locator("tbody tr").first.locator("td").nth(3)).to_have_text(str(batch), timeout=15_000)
    points = person.page.locator(".sparkline polyline").first.get_attribute("points") or ""
    assert len(points.split()) == 3, "one point for each batch that was seen"


def test_a_query_that_stalls_says_so_and_for_how_long(visit: Visits, cluster: Cluster) -> None:
    job = cluster.rest.do(cluster.board.streaming)
    person = visit()
    person.open(f"ui/jobs/{job}/streams", ".sparkline")
    expect(person.page.locator("text=stalled for")).to_have_count(0)
    cluster.rest.do(partial(cluster.board.stall, job, int(time.time() * 1000) - 3_600_000))
    cell = person.page.locator("tbody tr").nth(1).locator(".state.bad")
    expect(cell).to_have_text(re.compile(r"stalled for 1 h.*, 3 of 8 tasks of Spark"), timeout=15_000)
    expect(person.page.locator("tbody tr").nth(1)).to_contain_text("In stage 7, its thread in A.b:1")
    assert "execution.streaming.stall-timeout" in (cell.get_attribute("title") or "")


def test_a_checkpoint_is_chosen(visit: Visits, cluster: Cluster) -> None:
    job = cluster.rest.do(cluster.board.streaming)
    person = visit()
    person.open(f"ui/jobs/{job}/checkpoints", ".tab table")
    expect(person.page.locator("main")).to_contain_text("Positions of checkpoint 6")
    person.page.get_by_role("button", name="Checkpoint 4").click()
    expect(person.page.locator("main")).to_contain_text("Positions of checkpoint 4")
    assert "checkpoint=4" in person.page.url
    person.open(f"ui/jobs/{job}/checkpoints?checkpoint=99", ".tab table")
    expect(person.page.locator("main")).to_contain_text("This checkpoint is not kept any more.")


def test_logs_are_saved(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    read_log(person, cluster.jobs["running"], "INFO first\nDEBUG second\n")
    person.page.locator("label:has-text('Level') select").select_option("INFO")
    expect(person.page.locator(".line")).to_have_count(1)
    with person.page.expect_download() as of_job:
        person.page.click("button:text('Download')")
    assert of_job.value.suggested_filename == "orders_by_day.log"
    assert of_job.value.path().read_text() == "v 0 stdout: INFO first\n"
    cluster.rest.fakes.processes["127.0.0.1:1"].text = b"early\n" * 20_000
    person.open("ui/taskmanagers/tm-1/logs", ".line")
    with person.page.expect_download() as of_process:
        person.page.click("button:text('Download')")
    assert of_process.value.suggested_filename == "flinklike.log"
    assert of_process.value.path().read_bytes() == b"early\n" * 20_000, "more than what is shown"


def test_one_click_copies_an_id_and_times_are_of_the_browsers_zone(browser: Browser, cluster: Cluster) -> None:
    person = Visit(browser, cluster.rest.address, zone="Asia/Tokyo")
    person.sign_in(TOKEN)
    person.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    job = cluster.jobs["failed"]
    person.open(f"ui/jobs/{job}")
    person.page.click("button[title='Copy the job id'] >> nth=0")
    expect(person.page.locator(".toast")).to_have_text("Copied the job id.")
    assert person.page.evaluate("navigator.clipboard.readText()") == job
    started = person.page.locator("dd time").first
    told = started.get_attribute("title") or ""
    assert "GMT+0900" in told
    utc = datetime.fromisoformat(started.get_attribute("datetime") or "")
    assert started.inner_text().endswith((utc + timedelta(hours=9)).strftime("%H:%M:%S"))
    person.close()
    assert person.problems == []


def test_subtasks_have_their_slots(visit: Visits, cluster: Cluster) -> None:
    person = visit()
    person.open(f"ui/jobs/{cluster.jobs['running']}/subtasks", "tbody tr")
    row = person.page.locator("tbody tr", has_text="RUNNING").nth(1)
    assert row.locator("td").nth(4).inner_text() == "1"

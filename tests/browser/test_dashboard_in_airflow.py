"""The pages of jobs within a whole Airflow, with people who sign in there: who sees, who cancels, what is refused.

RECORD_PICTURES=1 writes the pictures of docs/airflow.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, FrameLocator, Page, expect

from airflow_flinklike.views.task_jobs import TaskPlace
from tests.kit.airflow.people import client_of, environment, token_of
from tests.kit.airflow.rest import AirflowRest, Run
from tests.kit.airflow.standalone import AirflowStandalone
from tests.kit.browser.visit import PATIENCE_MILLIS
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1200)]

CASES = ROOT / "tests" / "airflow" / "dag_cases" / "view_cases.py"
OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "4"}
expect.set_options(timeout=PATIENCE_MILLIS)
PICTURES = ROOT / "docs" / "airflow"


@dataclass
class Pair:
    """An Airflow with people, and its cluster."""

    airflow: AirflowStandalone
    cluster: ScriptCluster
    rest: AirflowRest
    folder: Path

    def run(self, name: str) -> tuple[Run, str]:
        """A run whose job waits, and the job's id."""
        run = self.rest.trigger("held_job", name, {"gate": str(self.folder / name)})
        job_id = reached(lambda: run.xcom("job_id"), f"the job of {name}", timeout=300)
        return run, str(job_id)

    def open(self, name: str) -> None:
        """Let the job end."""
        (self.folder / name).touch()

    def state(self, job_id: str) -> str:
        """Of a job, as the cluster says."""
        with self.cluster.connect() as client:
            return str(client.get(f"/jobs/{job_id}")["state"])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("people")
    with ScriptCluster(OPTIONS, job_masters=1) as cluster:
        connection = {"conn_type": "flinklike", "host": cluster.url, "password": cluster.token}
        variables = {
            **environment(folder),
            "AIRFLOW_CONN_FLINKLIKE_DEFAULT": json.dumps(connection),
            # What a task may name, and no page asks.
            "AIRFLOW_CONN_SOME_HTTP": json.dumps({"conn_type": "http", "host": cluster.url, "password": "secret"}),
        }
        with AirflowStandalone([CASES], variables) as airflow:
            rest = AirflowRest(airflow.url, token_of(airflow.url, "ada"))
            rest.wait_for_dag("held_job")
            yield Pair(airflow, cluster, rest, folder)
            rest.close()


@pytest.fixture(scope="module")
def probed(pair: Pair) -> Iterator[tuple[Run, str]]:
    yield pair.run("probed")
    pair.open("probed")


@pytest.fixture
def person(browser: Browser, pair: Pair) -> Iterator[Person]:
    made = Person(browser, pair)
    yield made
    made.close()


class Person:
    """Somebody with a browser that is signed in to Airflow."""

    def __init__(self, browser: Browser, pair: Pair) -> None:
        self._browser = browser
        self._pair = pair
        self._contexts: list[object] = []
        self.seen: list[tuple[str, str]] = []
        """Addresses of requests, and what was sent and answered with them."""

    def close(self) -> None:
        for one in self._contexts:
            one.close()  # type: ignore[attr-defined]

    def signs_in(self, name: str) -> Page:
        """By Airflow's own form."""
        context = self._browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(PATIENCE_MILLIS)
        self._contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: self.seen.append((request.url, str(request.all_headers()))))
        page.goto(f"{self._pair.airflow.url}/auth/login")
        page.fill("input[name=username]", name)
        page.fill("input[name=password]", name)
        page.click("button[type=submit]")
        page.wait_for_url(lambda url: "/auth/login" not in url)
        return page


def in_frame(page: Page) -> FrameLocator:
    return page.frame_locator("iframe")


def task_page(pair: Pair, run: Run) -> str:
    return f"{pair.airflow.url}/dags/{run.dag_id}/runs/{run.run_id}/tasks/{run.task_id}"


def picture(page: Page, name: str) -> None:
    if os.environ.get("RECORD_PICTURES"):
        PICTURES.mkdir(exist_ok=True)
        page.screenshot(path=PICTURES / f"{name}.png")


def test_a_job_is_seen_in_its_tab_and_cancelled_with_rights(pair: Pair, person: Person) -> None:
    run, job_id = pair.run("watched")
    page = person.signs_in("una")
    page.goto(task_page(pair, run))
    page.click("text=Flinklike job >> nth=-1")
    frame = in_frame(page)
    expect(frame.locator("main h1")).to_contain_text("RUNNING")
    expect(frame.locator("header")).to_contain_text("una")
    expect(frame.locator("svg .vertex")).to_have_count(1)
    picture(page, "task-tab")
    frame.locator(".tabs >> text=Logs").click()
    expect(frame.locator(".log")).to_contain_text("held by the gate")
    for tab in ("Timeline", "Subtasks", "Exceptions", "Configuration"):
        frame.locator(f".tabs >> text={tab}").click()
        expect(frame.locator(".tabs [aria-current=page]")).to_contain_text(tab)
    # The page of the cluster's processes is none of Airflow's.
    assert frame.locator("a[href*=taskmanagers], a[href*=jobmasters]").count() == 0
    frame.locator("text=Cancel job").click()
    expect(frame.locator("dialog")).to_contain_text("This cannot be undone")
    frame.locator("dialog >> text=Cancel the job").click()
    expect(frame.locator("main h1 .state")).to_have_text("CANCELED")
    assert pair.state(job_id) == "CANCELED"
    events = pair.rest.ask("GET", "/eventLogs", event="flinklike_cancel")["event_logs"]
    assert [(one["owner"], one["dag_id"]) for one in events] == [("una", "held_job")]
    assert not [url for url, sent in person.seen if pair.cluster.token in url + sent], "the cluster's token"


def test_who_may_only_read_sees_and_cancels_nothing(pair: Pair, person: Person) -> None:
    run, job_id = pair.run("read-only")
    page = person.signs_in("vera")
    page.goto(f"{task_page(pair, run)}/plugin/flinklike-job")
    frame = in_frame(page)
    expect(frame.locator("main h1")).to_contain_text("RUNNING")
    expect(frame.locator("text=Cancel job")).to_have_count(0)
    address = page.frames[-1].url
    api = address[: address.index("/ui/")] + f"/jobs/{job_id}"
    own = {"x-requested-with": "flinklike"}
    with client_of(pair.airflow.url, "vera") as vera, client_of(pair.airflow.url, "una") as una:
        assert vera.get(api).json()["state"] == "RUNNING"
        assert vera.patch(api, headers=own).status_code == 403
        assert una.patch(api).status_code == 403, "a page of another origin sends no such header"
        assert una.patch(api, headers={**own, "sec-fetch-site": "cross-site"}).status_code == 403
        assert pair.state(job_id) == "RUNNING"
        for path in ("", "/attempts", "/ui/jobs"):
            assert httpx.get(api + path).status_code in {401, 404}, "a stranger"
        assert httpx.get(address).status_code == 401
    pair.open("read-only")
    expect(frame.locator("main h1 .state")).to_have_text("FINISHED")
    expect(frame.locator(".result")).to_have_text("7")


def test_the_navigation_lists_jobs_and_leads_to_them(pair: Pair, person: Person) -> None:
    _, job_id = pair.run("listed")
    page = person.signs_in("vera")
    page.goto(f"{pair.airflow.url}/plugin/flinklike")
    frame = in_frame(page)
    expect(frame.locator("tbody")).to_contain_text("held_job.job")
    picture(page, "navigation")
    frame.locator("input[type=search]").fill("listed")
    expect(frame.locator("tbody tr")).to_have_count(1)
    frame.locator("tbody tr a").first.click()
    expect(frame.locator("main h1")).to_contain_text("RUNNING")
    expect(frame.locator("main")).to_contain_text(job_id)
    frame.locator("text=All jobs").click()
    expect(frame.locator("thead")).to_contain_text("Task")
    pair.open("listed")


@pytest.mark.parametrize(
    "path",
    [
        "overview",
        "taskmanagers",
        "jobmasters",
        "jobmanager/config",
        "tokens",
        "jobs",
        "blobs/x",
        "ti/{ref}/overview",
        "ti/{ref}/taskmanagers",
        "ti/{ref}/jobs/{job}/yarn-cancel",
        "ti/{ref}/jobs/{job}/clientHeartbeat",
        "ti/{ref}/jobs/{job}/vertices/x",
        "ti/{ref}/jobs/{job}/..%2f..%2ftaskmanagers",
        "ti/{ref}/jobs/..%2f..%2ftaskmanagers",
        "ti/{ref}/jobs/{other}",
        "ti/e30/jobs/{job}",
        "ti/%00/jobs/{job}",
        "static/x/..%2f..%2f..%2fapp.py",
    ],
)
def test_nothing_else_of_the_cluster_is_passed_on(pair: Pair, probed: tuple[Run, str], path: str) -> None:  # R56
    run, job_id = probed
    reference = TaskPlace(run.dag_id, run.run_id, run.task_id, -1).reference()
    asked = path.format(ref=reference, job=job_id, other="f" * 32)
    with client_of(pair.airflow.url, "ada") as ada:
        answer = ada.get(f"/flinklike/{asked}", headers={"x-forwarded-host": "evil", "host": "127.0.0.1"})
        assert answer.status_code in {400, 404}, answer.text
        good = ada.get(f"/flinklike/ti/{reference}/jobs/{job_id}")
        assert good.status_code == 200
        assert pair.cluster.token not in good.text + str(good.headers)
        assert "frame-ancestors 'self'" in good.headers["content-security-policy"]

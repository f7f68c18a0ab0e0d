"""The pages of a history server, started by its script over the histories of two clusters that are gone."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from runtime.common.states import JobStatus
from tests.kit.browser.visit import Visit
from tests.kit.history.histories import Histories, ended, job_id
from tests.kit.history.server import HistoryServer

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HistoryServer]:
    root = tmp_path_factory.mktemp("histories")

    histories = Histories(root)
    histories.clock.millis = int(time.time() * 1000)
    histories.put(ended(1, JobStatus.FAILED, name="broken"), ended(2, name="nightly"))
    histories.put(ended(3, name="nightly"), cluster="other")
    histories.io.close()
    with HistoryServer({"historyserver.archive.fs.dir": str(root)}) as started:
        yield started


@pytest.fixture
def person(browser: Browser, server: HistoryServer) -> Iterator[Visit]:
    one = Visit(browser, server.url)
    one.sign_in(server.token)
    yield one
    one.close()
    assert one.problems == []


def test_a_job_is_found_and_read(person: Visit) -> None:
    person.open("ui")
    expect(person.page.locator("header")).to_contain_text("History server")
    expect(person.page.locator("tbody tr")).to_have_count(3)
    expect(person.page.locator("thead")).to_contain_text("Cluster")
    assert person.page.locator("nav[aria-label=Pages] a").all_inner_texts() == ["Jobs"]
    assert person.violations() == []
    person.page.fill("input[type=search]", "broken")
    expect(person.page.locator("tbody tr")).to_have_count(1)
    person.page.click("tbody >> text=broken")
    expect(person.page.locator("main h1")).to_contain_text("FAILED")
    expect(person.page.locator("main")).to_contain_text("no such column")
    expect(person.page.locator("svg .vertex")).to_have_count(2)
    for tab in ("Timeline", "Subtasks", "Exceptions", "Logs", "Configuration"):
        person.page.click(f".tabs >> text={tab}")
        expect(person.page.locator(".tabs [aria-current=page]")).to_contain_text(tab)
    person.page.click(".tabs >> text=Logs")
    expect(person.page.locator("main")).to_contain_text("a history has no logs")
    person.page.click(".tabs >> text=Subtasks")
    expect(person.page.locator("tbody").first).to_contain_text("tm-1")
    assert person.violations() == []
    for action in ("Cancel job", "Move", "Drain"):
        expect(person.page.locator(f"text={action}")).to_have_count(0)
    assert person.page.locator("a[href*=taskmanagers]").count() == 0


def test_jobs_are_found_by_day(person: Visit) -> None:
    person.open("ui/jobs")
    expect(person.page.locator("tbody tr")).to_have_count(3)
    person.page.fill("input[type=date] >> nth=0", "2026-11-01")
    expect(person.page.locator("main")).to_contain_text("No job is like that")
    person.page.fill("input[type=date] >> nth=0", "1970-01-01")
    person.page.fill("input[type=date] >> nth=1", "1970-01-02")
    expect(person.page.locator("tbody tr")).to_have_count(3)
    assert "until=" in person.page.url


def test_a_page_of_the_cluster_is_none_here(person: Visit) -> None:
    person.open("ui/taskmanagers")
    assert "No such page" in person.text()


def test_the_page_goes_on_after_a_restart(person: Visit, server: HistoryServer) -> None:
    person.expected = ("ERR_CONNECTION", "ERR_EMPTY", "Failed to load")
    person.open(f"ui/jobs/{job_id(2)}")
    server.kill()
    expect(person.page.locator(".banner")).to_contain_text("The history server does not answer")
    server.start()
    expect(person.page.locator(".banner")).to_have_count(0)
    expect(person.page.locator("main h1")).to_contain_text("FINISHED")

"""The address alone leads somewhere: a browser to the page of the cluster, anything else to what can be asked."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.rest.app import create_app
from tests.kit.rest.fakes import RestFakes, shown

pytestmark = pytest.mark.asyncio
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def fakes() -> RestFakes:
    return RestFakes()


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=shown(""), content_length_max=1, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        yield client


def links(page: str) -> list[str]:
    return re.findall(r'href="([^"]*)"', page)


async def test_everything_that_the_first_answer_names_is_there(http: httpx.AsyncClient) -> None:
    told = (await http.get("/")).json()
    assert told.pop("flinklike-version")
    for path in told.values():
        assert (await http.get(path)).status_code == 200, path


async def test_a_browser_comes_to_the_page(http: httpx.AsyncClient) -> None:
    led = await http.get("/", headers=BROWSER)
    assert (led.status_code, led.headers["location"]) == (307, "ui")
    page = await http.get("/", headers=BROWSER, follow_redirects=True)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"


async def test_the_page_leads_to_jobs_and_processes(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    page = (await http.get("/ui")).text
    assert "no jobs yet" in page
    for number in range(60):
        fakes.dispatcher.put(JobId(f"{number:032x}"), JobStatus.FINISHED)
    first = JobId(f"{0:032x}")
    fakes.dispatcher.summaries[first] = replace(fakes.dispatcher.summaries[first], name="<b>", pending_reason="<i>")
    page = (await http.get("/ui")).text
    assert "60 finished" in page
    assert "and 10 older jobs" in page
    assert "&lt;b&gt;" in page
    assert "<i>" not in page
    found = links(page)
    assert len(found) == 52
    for link in (*found[:4], found[-1]):
        assert link.startswith("ui/")
        assert (await http.get(f"/{link}")).status_code == 200, link

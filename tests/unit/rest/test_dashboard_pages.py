"""The dashboard's document and files: the address alone leads to it, it loads what is its own, and it is escaped."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from runtime.rest.app import create_app
from runtime.rest.dashboard.static_files import static_files
from tests.kit.rest.fakes import RestFakes, shown

pytestmark = pytest.mark.asyncio
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
STATIC = Path(__file__).parents[3] / "runtime" / "rest" / "dashboard" / "static"


@pytest.fixture
def fakes() -> RestFakes:
    return RestFakes()


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=shown(""), content_length_max=1, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        yield client


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


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/jobs", "/ui/jobs/a%2Fb/logs", "/ui/a/b/c?x=../../y"])
async def test_each_page_loads_its_files_from_beside_the_root_wherever_a_proxy_has_put_it(
    http: httpx.AsyncClient, path: str
) -> None:
    page = await http.get(path)
    assert page.status_code == 200
    (base,) = re.findall('<base href="([^"]*)">', page.text)
    for found in re.findall('(?:href|src)="([^"]*)"', page.text):
        if found != base:
            seen = httpx.URL(f"http://proxy/team/flink{path}").join(base).join(found)
            assert seen.path.startswith("/team/flink/ui/static/"), seen
            assert (await http.get(seen.path.removeprefix("/team/flink"))).status_code == 200


async def test_the_document_takes_scripts_and_styles_from_the_cluster_only(http: httpx.AsyncClient) -> None:
    page = await http.get("/ui/jobs/<script>alert(1)</script>")
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    assert "alert" not in page.text
    assert not re.search(r"<style| style=| on\w+=|https?://", page.text)
    assert page.headers["cache-control"] == "no-store"


async def test_pages_that_may_frame_it_are_named_in_the_configuration(fakes: RestFakes) -> None:
    origins = ("https://airflow.example", "http://127.0.0.1:8080")
    context = replace(fakes.context(), frame_ancestors=origins)
    app = create_app(context, sign_in=shown(""), content_length_max=1, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        policy = (await client.get("/ui")).headers["content-security-policy"]
    assert policy.endswith("frame-ancestors https://airflow.example http://127.0.0.1:8080")


async def test_files_are_kept_for_good_and_are_of_one_release(http: httpx.AsyncClient) -> None:
    files = static_files()
    assert files.files.keys() == {str(one.relative_to(STATIC)) for one in STATIC.rglob("*") if one.is_file()}
    for name in files.files:
        answer = await http.get(f"/ui/static/{files.digest}/{name}")
        assert (answer.status_code, answer.content) == (200, (STATIC / name).read_bytes())
        assert "immutable" in answer.headers["cache-control"]
        assert (await http.get(f"/ui/static/{'0' * 16}/{name}")).status_code == 404
    for name in ("../pages.py", "app.js/", "nothing.js", "%2e%2e/pages.py", ""):
        assert (await http.get(f"/ui/static/{files.digest}/{name}")).status_code in {404, 200}
        assert b"authorized_router" not in (await http.get(f"/ui/static/{files.digest}/{name}")).content


async def test_no_file_names_another_host_or_makes_markup_of_text() -> None:
    for path in STATIC.rglob("*.js"):
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), path
        assert re.findall(r"https?://[^\s\"'`)]+", text) in ([], ["http://www.w3.org/2000/svg"]), path
        for imported in re.findall(r'from "([^"]+)"', text):
            assert imported.startswith("."), (path, imported)
            assert (path.parent / imported).is_file(), (path, imported)

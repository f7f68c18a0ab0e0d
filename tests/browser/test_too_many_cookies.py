"""A page at another port of the host, as Spark's own pages are, has filled the browser with cookies of this host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Cluster
from tests.kit.browser.visit import Visit
from tests.kit.rest.server import TOKEN

pytestmark = pytest.mark.process


class Page(BaseHTTPRequestHandler):
    """Sets forty cookies of four thousand bytes."""

    def do_GET(self) -> None:
        script = "for (let at = 0; at < 40; at += 1) document.cookie = `c${at}=${'x'.repeat(4000)}; path=/`;"
        body = f"<!doctype html><title>other</title><h1>other</h1><script>{script}</script>".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def other() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_browser_clears_them_and_one_signs_in_again(browser: Browser, cluster: Cluster, other: str) -> None:
    person = Visit(browser, cluster.rest.address)
    person.expected = ("431", "401", "asked another host", "favicon")
    person.sign_in(TOKEN)
    person.page.goto(other)
    expect(person.page.locator("h1")).to_have_text("other")
    person.page.goto(f"{cluster.rest.address}/ui")
    expect(person.page.locator("h1")).to_have_text("431 Request Header Fields Too Large")
    person.page.click("a")
    expect(person.page.locator("h1")).to_have_text("Sign in")
    person.sign_in(TOKEN)
    expect(person.page.locator("main h1")).to_have_text("Overview")
    person.close()
    assert person.problems == []

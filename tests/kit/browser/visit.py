"""A person with a browser: a page that is looked at, and what the browser had to say about it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Request, Response, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--font-render-hinting=none",
    "--disable-lcd-text",
]
PATIENCE_MILLIS = 60_000
"""A machine may be loaded: what comes is waited for."""
_EXECUTABLE = shutil.which("chromium")
NO_BROWSER = "no browser: chromium is not installed"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; the test is skipped where there is none."""
    if _EXECUTABLE is None:
        pytest.skip(NO_BROWSER)
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=_EXECUTABLE, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One page of one person. `problems`: what no page may have: errors, failed requests, requests to other hosts."""

    def __init__(
        self,
        browser: Browser,
        address: str,
        *,
        scheme: str = "light",
        width: int = 1280,
        height: int = 900,
        zone: str = "UTC",
    ) -> None:
        self.address = address
        self.problems: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Texts of what is no problem in this test, such as the status of a refusal; news of it may come late."""
        self.requests: list[str] = []
        size: Any = {"width": width, "height": height}
        look: Any = scheme
        self._context = browser.new_context(viewport=size, color_scheme=look, device_scale_factor=1, timezone_id=zone)
        self._context.set_default_timeout(PATIENCE_MILLIS)
        self.page: Page = self._context.new_page()
        self._listen()

    def close(self) -> None:
        """Leave."""
        self._context.close()

    def sign_in(self, token: str, path: str = "ui") -> None:
        """By the form of a page."""
        self.page.goto(f"{self.address}/{path}")
        self.page.fill("input[name=token]", token)
        self.page.click("button")
        self.page.wait_for_selector("#app header")
        self.problems.clear()  # the form itself is a 401

    def open(self, path: str, wanted: str = "main h1") -> None:
        """Go to a page below the address, and wait for what it shows."""
        self.page.goto(f"{self.address}/{path}")
        self.page.wait_for_selector(wanted)

    def text(self) -> str:
        """What a person reads."""
        return self.page.inner_text("body")

    def violations(self) -> list[str]:
        """What axe finds: contrast, names, roles."""
        found = Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def hide(self, *, hidden: bool) -> None:
        """As if the tab went to the back, or came to the front."""
        script = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
        self.page.evaluate(script % str(hidden).lower() + "document.dispatchEvent(new Event('visibilitychange'))")

    def _note(self, problem: str) -> None:
        if not any(one in problem for one in self.expected):
            self.problems.append(problem)

    def _listen(self) -> None:
        host = urlsplit(self.address).netloc

        def asked(request: Request) -> None:
            self.requests.append(request.url)
            if urlsplit(request.url).scheme in {"http", "https"} and urlsplit(request.url).netloc != host:
                self._note(f"asked another host: {request.url}")

        def failed(request: Request) -> None:
            if request.failure != "net::ERR_ABORTED":  # the page itself has left
                self._note(f"{request.url}: {request.failure}")

        def answered(response: Response) -> None:
            if response.status >= 400:
                self._note(f"{response.status} {response.url}")

        self.page.on("request", asked)
        self.page.on("requestfailed", failed)
        self.page.on("response", answered)
        self.page.on("pageerror", lambda error: self._note(f"error: {error}"))
        self.page.on("console", lambda said: self._note(said.text) if said.type in {"error", "warning"} else None)

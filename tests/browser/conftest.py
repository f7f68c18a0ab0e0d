"""The dashboard in a real browser, over the real REST endpoint with jobs of every look behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser

from runtime.common.ids import JobId
from tests.kit.browser.visit import Visit, chromium
from tests.kit.rest.board import Board
from tests.kit.rest.server import TOKEN, RestThread


@dataclass
class Cluster:
    """What the pages show. `jobs` by their look."""

    rest: RestThread
    board: Board
    jobs: dict[str, JobId]


Visits = Callable[..., Visit]
"""Makes a visit whose person has signed in; `problems` must be empty at its end."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one module: while it is there, its loop runs in this thread, and no asynchronous test can."""
    with chromium() as started:
        yield started


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with RestThread() as rest:
        board = Board(rest.dispatcher, int(time.time() * 1000))
        yield Cluster(rest, board, rest.do(board.fill))


@pytest.fixture
def visit(browser: Browser, cluster: Cluster) -> Iterator[Visits]:
    made: list[Visit] = []

    def start(*, scheme: str = "light", width: int = 1280) -> Visit:
        one = Visit(browser, cluster.rest.address, scheme=scheme, width=width)
        made.append(one)
        one.sign_in(TOKEN)
        return one

    yield start
    for one in made:
        one.close()
        assert one.problems == []

"""The dashboard in a real browser, over the real REST endpoint with jobs of every look behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.ids import JobId
from runtime.dispatcher.cluster_events import ClusterEventLog
from runtime.gateways.cluster_events import EventKind
from runtime.highavailability.cluster_events import ClusterEventStore
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.rest.access.audit import AuditLog
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
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    audit = AuditLog(tmp_path / "audit.jsonl", LoopClock(), files_max=2)
    audit.tell("cancel", "done", principal="ann", address="h", object_="a" * 32)
    audit.refuse("cancel", principal="ann", address="h", object_="b" * 32, reason="another's")
    rest = RestThread()
    rest.fakes.audit = audit
    with closing(audit), rest:
        board = Board(rest.dispatcher, int(time.time() * 1000))
        rest.do(partial(something_has_happened, rest))
        yield Cluster(rest, board, rest.do(board.fill))


def something_has_happened(rest: RestThread) -> None:
    """Events of each kind of look."""
    history = ClusterEventStore(
        MemoryKeyValueStore(LoopClock()), Keys.of_cluster("t"), LeaderTerm("k", 1), SystemEntropy(), timeout=1
    )
    events = rest.fakes.events = ClusterEventLog(history, 1, LoopClock(), SystemEntropy())
    events.tell(EventKind.LEADER_ELECTED, "JobManager jm-1 leads, term 7", subject="jm-1")
    events.tell(EventKind.TASKMANAGER_REGISTERED, "TaskManager tm-1 registered", subject="tm-1")
    events.tell(EventKind.TASKMANAGER_LOST, "TaskManager tm-1 is lost: silent for 9.0 s", subject="tm-1")
    events.tell_of_job(EventKind.JOB_TAKEN_OVER, "job orders goes to b", JobId("a" * 32), "default")


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

"""A thousand waiters share one poll, one client, its failover and its errors, over the real REST application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from airflow_flinklike.client import AsyncFlinklikeClient, operations, shared_poll
from airflow_flinklike.client.model import JobState
from airflow_flinklike.client.protocol import Operation
from airflow_flinklike.client.shared_poll import SharedPoll
from airflow_flinklike.exceptions import (
    AuthenticationError,
    ClusterUnavailableError,
    JobNotFoundError,
    JobRefusedError,
)
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.kit.control_plane.plane import eventually
from tests.kit.rest.clients import TOKEN, AsyncWire, Fault, Wire, stage
from tests.kit.rest.fakes import RestFakes

pytestmark = pytest.mark.asyncio


Access = tuple[tuple[str, ...], str]


def job(number: int) -> JobId:
    return JobId(f"{number:032x}")


@dataclass
class Box:
    """The fakes behind the application, the requests to it, and the clients."""

    fakes: RestFakes = field(default_factory=RestFakes)
    addresses: tuple[str, ...] = ("http://one:1", "http://two:2")
    tokens: list[str] = field(default_factory=lambda: [TOKEN])
    looked: int = 0
    clients: list[AsyncFlinklikeClient] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wire = Wire(stage(self.fakes))

    async def look_up(self) -> Access:
        """The next token; after the last one, the last one."""
        self.looked += 1
        return self.addresses, self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]

    def connect(self, access: Access) -> AsyncFlinklikeClient:
        addresses, token = access
        made = AsyncFlinklikeClient(addresses, token, retry_for=0.05, transport=AsyncWire(self.wire))
        self.clients.append(made)
        return made

    def put(self, number: int, status: JobStatus = JobStatus.RUNNING, modified: int = 1000) -> None:
        self.fakes.dispatcher.put(job(number), status, modified)

    @property
    def asked(self) -> list[dict[JobId, int]]:
        return [known for known, _ in self.fakes.dispatcher.polled]


@asynccontextmanager
async def polling(box: Box, *, linger: float = 0.05) -> AsyncIterator[SharedPoll[Access]]:
    """At the end there are no waiters, and all clients are closed."""
    poll = SharedPoll(box.look_up, box.connect, gather=0.01, linger=linger)
    async with asyncio.timeout(100):
        yield poll
        await eventually(lambda: poll.is_idle)
        await eventually(lambda: all(one.is_closed for one in box.clients))


@contextmanager
def waits(
    poll: SharedPoll[Access], *numbers: int, since: int = 1000, patience: float = 60.0
) -> Iterator[list[asyncio.Task[JobState | None]]]:
    """Tasks that wait without a time limit; the fixture cancels those that are left."""
    tasks = [asyncio.ensure_future(poll.wait(job(number), since, None, patience=patience)) for number in numbers]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()


async def test_a_state_that_is_not_known_is_told_now() -> None:
    box = Box()
    box.put(1, modified=700)
    async with polling(box) as poll:
        assert await poll.wait(job(1), 0, 5.0) == JobState(job(1), JobStatus.RUNNING, 700, "")


async def test_a_thousand_share_one_poll_and_each_hears_of_its_job_only() -> None:
    box = Box()
    for number in range(1000):
        box.put(number)
    async with polling(box) as poll:
        with waits(poll, *range(1000)) as tasks:
            await eventually(lambda: box.fakes.dispatcher.polls == 1)
            assert len(box.asked[-1]) == 1000
            box.put(7, JobStatus.FINISHED, 2000)
            assert await tasks[7] == JobState(job(7), JobStatus.FINISHED, 2000, "")
            await eventually(lambda: len(box.asked) == 2)
            assert not any(task.done() for number, task in enumerate(tasks) if number != 7)
            assert len(box.asked[-1]) == 999
    assert box.looked == 1


async def test_who_comes_later_is_taken_along_soon() -> None:
    box = Box()
    for number in range(200):
        box.put(number)
    async with polling(box) as poll:
        with waits(poll, 0) as first:
            await eventually(lambda: len(box.asked) == 1)
            with waits(poll, *range(1, 200)) as more:
                await eventually(lambda: len(box.asked[-1]) == 200)
                assert len(box.asked) <= 4, "not a poll for each"
                assert box.fakes.dispatcher.waiters.count == 200, "the poll before it has ended"
                box.put(150, JobStatus.CANCELED, 2000)
                found = await more[149]
                assert found is not None
                assert found.status is JobStatus.CANCELED
            assert not first[0].done()


async def test_who_is_cancelled_leaves_and_the_others_wait_on() -> None:
    box = Box()
    box.put(1)
    box.put(2)
    async with polling(box) as poll:
        with waits(poll, 1, 2) as (first, second):
            await eventually(lambda: len(box.asked) == 1)
            first.cancel()
            box.put(2, JobStatus.FAILED, 2000)
            assert (await second) is not None


async def test_no_change_within_the_time_is_no_news() -> None:
    box = Box()
    box.put(1)
    async with polling(box) as poll:
        assert await poll.wait(job(1), 1000, 0.02) is None
        assert await poll.wait(job(1), 1000, 0.02) is None


async def test_who_comes_back_finds_the_connections_open() -> None:
    box = Box()
    box.put(1)
    async with polling(box, linger=0.5) as poll:
        for _ in range(3):
            await poll.wait(job(1), 0, 5.0)
            await asyncio.sleep(0)
        assert len(box.clients) == 1


async def test_after_an_end_it_begins_anew() -> None:
    box = Box()
    box.put(1)
    async with polling(box, linger=0.0) as poll:
        await poll.wait(job(1), 0, 5.0)
        await eventually(lambda: poll.is_idle)
        assert await poll.wait(job(1), 0, 5.0) is not None
        assert len(box.clients) == 2


async def test_a_job_that_nobody_knows_is_an_error_for_who_waits_for_it() -> None:
    box = Box()
    box.put(1)
    async with polling(box) as poll:
        with waits(poll, 1, 2) as (known, unknown):
            with pytest.raises(JobNotFoundError, match=job(2)):
                await unknown
            assert not known.done()


async def test_a_failover_only_takes_longer() -> None:
    box = Box()
    box.put(1)
    box.wire.is_down = lambda request: request.url.host == "one"
    box.wire.faults = [Fault.LOST_AFTER, httpx.Response(503), httpx.Response(429, headers={"retry-after": "0.05"})]
    async with polling(box) as poll:
        assert await poll.wait(job(1), 0, 5.0) is not None


async def test_a_cluster_that_stays_away_is_told_to_all_when_patience_is_over() -> None:
    box = Box()
    box.wire.is_down = lambda _: True
    async with polling(box) as poll:
        with waits(poll, 1, 2, patience=0.2) as tasks, waits(poll, 1) as (patient,):
            for task in tasks:
                with pytest.raises(ClusterUnavailableError):
                    await task
            assert not patient.done()
    assert box.looked > 1, "the connection may have been changed"


async def test_a_cluster_that_comes_back_in_time() -> None:
    box = Box()
    box.put(1)
    box.wire.is_down = lambda _: True
    async with polling(box) as poll:
        with waits(poll, 1, since=0) as (task,):
            await eventually(lambda: box.looked > 2)
            box.wire.is_down = lambda _: False
            assert (await task) is not None


async def test_a_refused_token_is_told_to_all() -> None:
    box = Box(tokens=["old"])
    async with polling(box) as poll:
        with waits(poll, 1, 2) as tasks:
            for task in tasks:
                with pytest.raises(AuthenticationError):
                    await task
    assert box.looked == 2, "it might have been changed"


async def test_a_token_that_was_changed_is_used() -> None:
    box = Box(tokens=["old", TOKEN])
    box.put(1)
    async with polling(box) as poll:
        assert await poll.wait(job(1), 0, 5.0) is not None


async def test_a_changed_connection_is_noticed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box()
    box.put(1)
    async with polling(box) as poll:
        await poll.wait(job(1), 0, 5.0)
        box.addresses = ("http://three:3",)
        await poll.wait(job(1), 0, 5.0)
        assert [one.url.host for one in box.wire.seen] == ["one", "one"]
        monkeypatch.setattr(shared_poll, "LOOK_SECONDS", 0.0)
        await poll.wait(job(1), 0, 5.0)
        assert box.wire.seen[-1].url.host == "three"


async def test_what_looking_up_raises_is_told_to_all() -> None:
    box = Box()

    async def gone() -> Access:
        message = "no such connection"
        raise LookupError(message)

    poll: SharedPoll[Access] = SharedPoll(gone, box.connect, gather=0.0, linger=0.0)
    with waits(poll, 1, 2) as tasks:
        for task in tasks:
            with pytest.raises(LookupError, match="no such connection"):
                await task
    await eventually(lambda: poll.is_idle)


async def test_a_cluster_that_refuses_the_poll() -> None:
    box = Box()
    box.wire.faults = [httpx.Response(400, json={"errors": ["known: unknown field"]})]
    async with polling(box) as poll:
        with pytest.raises(JobRefusedError, match="unknown field"):
            await poll.wait(job(1), 0, 5.0)


async def test_who_is_attached_uses_the_same_client() -> None:
    box = Box()
    box.put(1)
    async with polling(box, linger=0.0) as poll:
        with waits(poll, 1) as (task,):
            await eventually(lambda: len(box.asked) == 1)
            async with poll.attached() as shared:
                await (await shared.client()).cancel(job(1))
                assert box.fakes.dispatcher.cancelled == [job(1)]
                task.cancel()
                await eventually(lambda: task.done() and box.fakes.dispatcher.waiters.count == 1)
                assert not box.clients[0].is_closed
    assert (len(box.clients), box.looked) == (1, 1)


def status_of(number: int) -> Operation[JobState]:
    return operations.status(job(number), wait=0.0, since=0)


@pytest.mark.parametrize("token", ["old", TOKEN])
async def test_an_operation_is_tried_with_the_token_of_now(token: str) -> None:
    box = Box(tokens=["old", token])
    box.put(1)
    async with polling(box) as poll, poll.attached():
        if token == TOKEN:
            assert (await poll.run(lambda: status_of(1))).status is JobStatus.RUNNING
        else:
            with pytest.raises(AuthenticationError):
                await poll.run(lambda: status_of(1))
            box.tokens = [TOKEN]
            assert (await poll.run(lambda: status_of(1))).status is JobStatus.RUNNING
            assert (await poll.client()) is box.clients[-1], "what was refused once is over"
    assert box.looked == (2 if token == TOKEN else 3)


async def test_an_operation_rides_over_an_outage_for_as_long_as_it_may() -> None:
    box = Box()
    box.put(1)
    box.wire.is_down = lambda _: True
    async with polling(box) as poll, poll.attached():
        with pytest.raises(ClusterUnavailableError):
            await poll.run(lambda: status_of(1))
        looked = box.looked
        task = asyncio.ensure_future(poll.run(lambda: status_of(1), patience=60.0))
        await eventually(lambda: box.looked > looked + 1)
        box.wire.is_down = lambda _: False
        assert (await task).status is JobStatus.RUNNING


async def test_what_is_asked_after_the_poll_has_broken_down_is_closed_too() -> None:
    box = Box()
    box.put(1)
    box.wire.faults = [httpx.Response(401)]
    async with polling(box, linger=0.0) as poll, poll.attached():
        with pytest.raises(AuthenticationError):
            await poll.wait(job(1), 0, 5.0)
        await eventually(lambda: box.clients[0].is_closed)
        assert (await poll.run(lambda: status_of(1))).status is JobStatus.RUNNING
        assert len(box.clients) == 2

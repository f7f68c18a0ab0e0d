"""The driver `ssh` over hosts that answer, do not, or come back: no worker is lost or doubled (R65)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from runtime.aio.clock import LoopClock
from runtime.common.errors import InvalidInputError
from runtime.entrypoint.control import worker_verbs
from runtime.entrypoint.drivers.ssh_calls import HostRefusedError, HostUnreachableError, SshCalls
from runtime.entrypoint.drivers.ssh_hosts import SshDriver
from runtime.resourcemanager.driver import DriverError

pytestmark = pytest.mark.asyncio

ONE, TWO = "w-000000000001", "w-000000000002"


class Hosts(SshCalls):
    """Hosts without ssh. `down`: those that cannot be reached. `breaks`: the connection ends behind the answer."""

    def __init__(self, *names: str) -> None:
        self.labels: dict[str, set[str]] = {name: set() for name in names}
        self.lines = list(names)
        self.down: set[str] = set()
        self.breaks = False
        self.refuses = ""
        self.asked: list[tuple[str, str]] = []
        self.remembered: list[str] = []
        self.may_look = threading.Event()
        self.may_look.set()
        self.looks = threading.Event()
        self.may_start = threading.Event()
        self.may_start.set()

    def remember(self, host: str) -> None:
        self.remembered.append(host)

    def ask(
        self, host: str, arguments: Sequence[str], *, is_wanted: Callable[[], bool] | None = None
    ) -> Mapping[str, Any]:
        verb, *rest = arguments
        self.asked.append((host, verb))
        if host in self.down:
            message = f"{host} cannot be reached: timed out"
            raise HostUnreachableError(message, is_unknown=is_wanted is None)
        if self.refuses:
            raise HostRefusedError(self.refuses)
        return self._answer(host, verb, rest, is_wanted)

    def _answer(
        self, host: str, verb: str, rest: Sequence[str], is_wanted: Callable[[], bool] | None
    ) -> Mapping[str, Any]:
        match verb:
            case worker_verbs.WORKERS:
                found = sorted(self.labels[host])
                self.looks.set()
                assert self.may_look.wait(60)
                return {"workers": found}
            case worker_verbs.START:
                assert is_wanted is not None
                assert self.may_start.wait(60)
                if not is_wanted():
                    message = "nobody wants it any more"
                    raise HostRefusedError(message)
                self.labels[host].add(rest[0])
                if self.breaks:
                    message = f"{host} cannot be reached: broken pipe"
                    raise HostUnreachableError(message, is_unknown=True)
                return {"started": rest[0], "out": f"/logs/{rest[0]}.out"}
            case worker_verbs.WORDS:
                return {"words": f"the last line of {rest[0]}"}
            case _:
                self.labels[host] -= set(rest) if rest else self.labels[host]
                return {}

    def driver(self, *, look_interval: float = 0.0, retry_interval: float = 0.0) -> SshDriver:
        return SshDriver(
            self,
            lambda: self.lines,
            lambda host, _: [f"taskmanager.host={host}"],
            LoopClock(),
            look_interval=look_interval,
            retry_interval=retry_interval,
        )


def wanted() -> bool:
    return True


async def test_the_host_with_the_fewest_workers_is_next_and_no_host_has_more_than_its_lines() -> None:
    hosts = Hosts("a", "b")
    hosts.lines = ["a", "b", "b", "b"]
    driver = hosts.driver()
    await driver.workers()
    for number in range(4):
        await driver.start(f"w-{number:012}", is_wanted=wanted)
    assert {name: len(found) for name, found in hosts.labels.items()} == {"a": 1, "b": 3}
    with pytest.raises(DriverError, match=r"no host of the file has room for one more: a has 1 of 1, b has 3 of 3"):
        await driver.start("w-00000000000f", is_wanted=wanted)
    assert hosts.remembered == ["a", "b"], "a stop asks them, whatever the file says then"


async def test_starts_at_the_same_time_go_to_different_hosts() -> None:
    hosts = Hosts("a", "b")
    hosts.lines = ["a", "a", "b", "b"]
    driver = hosts.driver()
    await driver.workers()
    hosts.may_start.clear()
    async with asyncio.TaskGroup() as group:
        for worker_id in (ONE, TWO):
            group.create_task(driver.start(worker_id, is_wanted=wanted))
        while len([one for one in hosts.asked if one[1] == worker_verbs.START]) < 2:
            await asyncio.sleep(0.01)
        hosts.may_start.set()
    assert {name: len(found) for name, found in hosts.labels.items()} == {"a": 1, "b": 1}


async def test_a_host_out_of_reach_is_left_out_and_named() -> None:
    hosts = Hosts("a", "b")
    hosts.down = {"a"}
    driver = hosts.driver(retry_interval=3600.0)
    assert list(await driver.workers()) == []
    await driver.start(ONE, is_wanted=wanted)
    assert hosts.labels == {"a": set(), "b": {ONE}}
    with pytest.raises(DriverError, match=r"a cannot be reached: timed out, b has 1 of 1"):
        await driver.start(TWO, is_wanted=wanted)
    asked = len([one for one in hosts.asked if one[0] == "a"])
    await driver.workers()
    assert len([one for one in hosts.asked if one[0] == "a"]) == asked, "it is not asked again for a while"


async def test_a_host_that_is_lost_between_look_and_start_makes_room_for_the_next_one() -> None:
    hosts = Hosts("a", "b")
    driver = hosts.driver(retry_interval=3600.0)
    await driver.workers()
    hosts.down = {"a"}
    await driver.start(ONE, is_wanted=wanted)
    assert hosts.labels == {"a": set(), "b": {ONE}}
    assert list(await driver.workers()) == [ONE]


async def test_a_host_that_refuses_a_start_is_left_out_for_a_while() -> None:
    hosts = Hosts("a", "b")
    driver = hosts.driver(retry_interval=3600.0)
    await driver.workers()
    hosts.refuses = "a: no space left"
    with pytest.raises(DriverError, match="no space left"):
        await driver.start(ONE, is_wanted=wanted)
    hosts.refuses = ""
    await driver.start(ONE, is_wanted=wanted)
    assert hosts.labels == {"a": set(), "b": {ONE}}
    with pytest.raises(DriverError, match=r"no host of the file .*: a: no space left, b has 1 of 1"):
        await driver.start(TWO, is_wanted=wanted)


async def test_a_start_that_nobody_wants_is_no_fault_of_the_host() -> None:
    hosts = Hosts("a")
    driver = hosts.driver(retry_interval=3600.0)
    await driver.workers()
    with pytest.raises(DriverError, match="nobody wants it any more"):
        await driver.start(ONE, is_wanted=lambda: False)
    await driver.start(ONE, is_wanted=wanted)
    assert hosts.labels == {"a": {ONE}}


async def test_workers_of_a_host_that_is_cut_off_are_unknown_and_not_gone() -> None:
    hosts = Hosts("a", "b")
    driver = hosts.driver()
    await driver.workers()
    await driver.start(ONE, is_wanted=wanted)
    await driver.start(TWO, is_wanted=wanted)
    hosts.down = {"a"}
    for _ in range(3):
        assert sorted(await driver.workers()) == [ONE, TWO]
    asked = len(hosts.asked)
    with pytest.raises(DriverError, match=r"a cannot be reached: .*; it is tried again"):
        await driver.release(ONE, kills=True)
    assert len(hosts.asked) == asked, "nobody waits for it"
    assert await driver.last_words(ONE) == ""
    hosts.labels["a"].clear()
    assert sorted(await driver.workers()) == [ONE, TWO], "nobody knows that it has ended"
    hosts.down = set()
    while sorted(await driver.workers()) != [TWO]:
        pass


async def test_a_host_out_of_reach_delays_no_look_at_the_others() -> None:
    hosts = Hosts("a", "b")
    hosts.down = {"a"}
    driver = hosts.driver()
    await driver.workers()
    hosts.down = set()
    hosts.labels["b"] = {TWO}
    hosts.may_look.clear()
    hosts.lines = ["a"]  # only the look at a is under way
    assert list(await driver.workers()) == []
    hosts.may_look.set()


async def test_a_start_whose_outcome_is_unknown_counts_until_the_host_has_answered() -> None:
    hosts = Hosts("a")
    hosts.lines = ["a", "a"]
    driver = hosts.driver()
    await driver.workers()
    hosts.breaks = True
    with pytest.raises(DriverError, match="broken pipe"):
        await driver.start(ONE, is_wanted=wanted)
    hosts.down = {"a"}
    assert list(await driver.workers()) == [ONE]
    hosts.down, hosts.breaks = set(), False
    hosts.labels["a"] = set()
    while list(await driver.workers()):
        pass


async def test_a_worker_that_starts_during_a_look_is_in_its_answer() -> None:
    hosts = Hosts("a")
    hosts.lines = ["a", "a"]
    driver = hosts.driver(look_interval=0.0)
    await driver.workers()
    hosts.may_look.clear()
    hosts.looks.clear()
    async with asyncio.TaskGroup() as group:
        look = group.create_task(driver.workers())
        while not hosts.looks.is_set():
            await asyncio.sleep(0.01)
        await driver.start(ONE, is_wanted=wanted)
        hosts.may_look.set()
    assert list(look.result()) == [ONE]


async def test_after_a_release_the_host_is_asked_soon() -> None:
    hosts = Hosts("a")
    driver = hosts.driver(look_interval=3600.0)
    await driver.workers()
    await driver.start(ONE, is_wanted=wanted)
    await driver.release(ONE, kills=False)
    async with asyncio.timeout(60):
        while list(await driver.workers()):
            await asyncio.sleep(0.01)


async def test_a_start_that_the_end_of_a_term_cuts_off_counts_until_the_host_is_asked_which_is_at_once() -> None:
    hosts = Hosts("a")
    driver = hosts.driver(look_interval=3600.0)
    await driver.workers()
    hosts.may_start.clear()
    start = asyncio.create_task(driver.start(ONE, is_wanted=lambda: False))
    while ("a", worker_verbs.START) not in hosts.asked:
        await asyncio.sleep(0.01)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    hosts.asked.clear()
    await driver.workers()
    assert hosts.asked == [("a", worker_verbs.WORKERS)]
    hosts.may_start.set()


async def test_what_no_driver_has_started_is_no_worker() -> None:
    hosts = Hosts("a")
    hosts.labels["a"] = {ONE, "w-1", f"{TWO}\n2026-01-01 ERROR all is lost", "x", ""}
    assert list(await hosts.driver().workers()) == [ONE]


async def test_a_host_that_leaves_the_file_during_a_start_is_remembered() -> None:
    hosts = Hosts("a")
    driver = hosts.driver()
    await driver.workers()
    hosts.may_start.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(driver.start(ONE, is_wanted=wanted))
        while ("a", worker_verbs.START) not in hosts.asked:
            await asyncio.sleep(0.01)
        hosts.lines = []
        assert list(await driver.workers()) == []
        hosts.may_start.set()
    assert list(await driver.workers()) == [ONE]


async def test_hosts_come_and_go_with_the_file() -> None:
    hosts = Hosts("a", "b")
    hosts.lines = ["a"]
    driver = hosts.driver()
    await driver.workers()
    await driver.start(ONE, is_wanted=wanted)
    hosts.lines = ["b"]
    assert list(await driver.workers()) == [ONE], "it is named no more, and its worker runs"
    await driver.start(TWO, is_wanted=wanted)
    assert hosts.labels == {"a": {ONE}, "b": {TWO}}
    hosts.down = {"a"}
    while sorted(await driver.workers()) != [TWO]:
        pass  # who takes the line of a dead host out says that it is gone
    hosts.down = set()


async def test_a_file_that_cannot_be_read_is_the_drivers_answer() -> None:
    def broken() -> list[str]:
        message = "conf/workers names localhost"
        raise InvalidInputError(message)

    driver = SshDriver(Hosts(), broken, lambda _host, _label: (), LoopClock(), look_interval=0.0, retry_interval=0.0)
    with pytest.raises(DriverError, match="names localhost"):
        await driver.workers()


async def test_what_a_host_refuses_is_told_and_ends_no_other() -> None:
    hosts = Hosts("a", "b")
    driver = hosts.driver()
    await driver.workers()
    await driver.start(ONE, is_wanted=wanted)
    await driver.start(TWO, is_wanted=wanted)
    assert await driver.last_words(ONE) == f"on a: the last line of /logs/{ONE}.out"
    hosts.refuses = "a: no space left"
    with pytest.raises(DriverError, match="no space left"):
        await driver.release(ONE, kills=False)
    hosts.refuses = ""
    hosts.down = {"b"}
    with pytest.raises(DriverError, match="b cannot be reached"):
        await driver.end_workers()
    assert hosts.labels == {"a": set(), "b": {TWO}}

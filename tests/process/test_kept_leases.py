"""R40 with real processes and a real etcd: a holder, its keeper, and the ways in which they stand still or end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.core.keeping import STALL_TTLS
from tests.kit.etcd.server import EtcdProcess
from tests.kit.host.lease_holder import LeaseHolder, lease_holder
from tests.kit.host.levels import reached
from tests.kit.host.process_tree import freeze

pytestmark = [pytest.mark.process, pytest.mark.etcd]

TTL = 6
"""Long enough for processes that wait for the processor, and for etcd to find that a lease has ended."""
STALL = STALL_TTLS * TTL
"""What ends with its lease ends before that; what a keeper keeps ends behind it. No test asks for a closer time."""

IsRegistered = Callable[[], bool]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def holder(run: Path, etcd: EtcdProcess) -> Iterator[LeaseHolder]:
    values = {
        **etcd.options(),
        "high-availability.cluster-id": run.parent.name,
        "high-availability.lease-timeout": f"{TTL} s",
        "high-availability.etcd.timeout": f"{TTL} s",
        "security.authentication": "none",
    }
    dynamic = [argument for key, value in values.items() for argument in ("-D", f"{key}={value}")]
    with lease_holder(run, dynamic) as made:
        yield made


@pytest.fixture
def is_registered(holder: LeaseHolder, run: Path, etcd: EtcdProcess) -> IsRegistered:
    key = Keys.of_cluster(run.parent.name).job_master(holder.incarnation)
    return lambda: bool(etcd.ctl("get", key, "--keys-only").strip())


def seconds_until_it_is_gone(is_registered: IsRegistered, began: float) -> float:
    reached(lambda: not is_registered(), "the registration ends", timeout=STALL + 100)
    return time.monotonic() - began


def goes_on(is_registered: IsRegistered, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert is_registered()
        time.sleep(0.1)


def test_a_loop_that_stands_still_for_longer_than_its_lease_keeps_it(
    holder: LeaseHolder, is_registered: IsRegistered
) -> None:
    holder.stand_still(2 * TTL)
    goes_on(is_registered, 2 * TTL)
    assert holder.is_valid()
    goes_on(is_registered, TTL)


def test_a_loop_that_stands_still_for_ever_loses_it(holder: LeaseHolder, is_registered: IsRegistered) -> None:
    holder.stand_still(600)
    took = seconds_until_it_is_gone(is_registered, time.monotonic())
    assert took > STALL - TTL
    assert not holder.is_valid()


def test_a_stopped_process_loses_it_as_without_a_keeper(holder: LeaseHolder, is_registered: IsRegistered) -> None:
    freeze(holder.pid)
    took = seconds_until_it_is_gone(is_registered, time.monotonic())
    assert took < STALL
    os.kill(holder.pid, signal.SIGCONT)
    reached(lambda: holder.is_valid() and is_registered(), "it is registered again")


def test_both_stopped_and_woken_act_on_nothing_that_is_over(holder: LeaseHolder, is_registered: IsRegistered) -> None:
    keeper = holder.keeper
    freeze(keeper)
    holder.stand_still(2 * STALL)
    freeze(holder.pid)
    seconds_until_it_is_gone(is_registered, time.monotonic())
    os.kill(holder.pid, signal.SIGCONT)
    # Its loop still stands still; it is asked on another thread, before anything else of it has run.
    assert not holder.is_valid()
    os.kill(keeper, signal.SIGCONT)
    reached(lambda: holder.is_valid() and is_registered(), "it is registered again")


def test_a_keeper_that_stands_still_is_done_without(holder: LeaseHolder, is_registered: IsRegistered) -> None:
    keeper = holder.keeper
    freeze(keeper)
    goes_on(is_registered, 2 * TTL)
    assert holder.is_valid()
    holder.end()
    assert not psutil.pid_exists(keeper)


def test_a_keeper_that_is_killed_is_told_and_done_without(
    holder: LeaseHolder, is_registered: IsRegistered, run: Path
) -> None:
    os.kill(holder.keeper, signal.SIGKILL)
    said = "has ended (signal 9): this process renews its lease by itself"
    reached(lambda: said in (run / "stderr").read_text(), "that the keeper has ended")
    goes_on(is_registered, 2 * TTL)
    assert holder.is_valid()


@pytest.mark.parametrize("is_stopped", [False, True], ids=["keeper runs", "keeper stands still"])
def test_a_keeper_ends_with_its_process(
    holder: LeaseHolder,
    is_registered: IsRegistered,
    is_stopped: bool,
) -> None:
    keeper = psutil.Process(holder.keeper)
    if is_stopped:
        freeze(keeper.pid)
    os.kill(holder.pid, signal.SIGKILL)
    began = time.monotonic()
    keeper.wait(100)
    assert seconds_until_it_is_gone(is_registered, began) < STALL

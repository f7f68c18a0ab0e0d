"""What every driver promises the ResourceManager (R65): on this host, over ssh, and in containers.

Each with real TaskManagers. docs/operations.md says what a driver that is skipped here needs.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.entrypoint.drivers.choice import WorkerDriver
from runtime.resourcemanager.driver import DriverError
from tests.kit.cluster.compose import docker_host, why_not
from tests.kit.drivers.rigs import MISTAKE, DockerRig, ProcessRig, Rig, SshRig
from tests.kit.drivers.sshd import why_no_sshd

NO_DOCKER, NO_SSHD = why_not(), why_no_sshd()
pytestmark = [pytest.mark.asyncio, pytest.mark.process, pytest.mark.slow]

FIRST, SECOND = "w-000000000001", "w-000000000002"
DRIVERS = [
    pytest.param(ProcessRig, id="process"),
    pytest.param(SshRig, id="ssh", marks=pytest.mark.skipif(bool(NO_SSHD), reason=NO_SSHD)),
    pytest.param(lambda _: DockerRig(), id="docker", marks=pytest.mark.skipif(bool(NO_DOCKER), reason=NO_DOCKER)),
]


@pytest.fixture(params=DRIVERS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    make: Callable[[Path], Rig] = request.param
    with make(tmp_path / "here") as made:
        yield made


async def ended(driver: WorkerDriver, *left: str) -> None:
    """Wait until no others run."""
    async with asyncio.timeout(100):
        while sorted(await driver.workers()) != sorted(left):
            await asyncio.sleep(0.1)


async def drained(driver: WorkerDriver, worker_id: str) -> None:
    """Release it until it ends: one that is still beginning may miss the first signal."""
    async with asyncio.timeout(200):
        while worker_id in await driver.workers():
            await driver.release(worker_id, kills=False)
            await asyncio.sleep(0.5)


def wanted() -> bool:
    return True


async def test_a_later_leader_sees_ends_and_replaces_what_an_earlier_one_has_started(rig: Rig) -> None:
    earlier, later = rig.driver(), rig.driver()
    assert list(await earlier.workers()) == []
    await earlier.start(FIRST, is_wanted=wanted)
    assert list(await earlier.workers()) == [FIRST]
    assert list(await later.workers()) == [FIRST]
    await later.start(SECOND, is_wanted=wanted)
    assert sorted(await later.workers()) == [FIRST, SECOND]
    assert sorted(await rig.driver().workers()) == [FIRST, SECOND]
    await drained(later, FIRST)
    await ended(later, SECOND)
    await later.release(FIRST, kills=False)
    await later.release(FIRST, kills=True)
    await later.release(SECOND, kills=True)
    await ended(later)
    await ended(rig.driver())


async def test_a_worker_that_nobody_wants_any_more_does_not_start(rig: Rig) -> None:
    driver = rig.driver()
    await driver.workers()
    with pytest.raises(DriverError, match="nobody wants it any more"):
        await driver.start(FIRST, is_wanted=lambda: False)
    assert list(await driver.workers()) == list(await rig.driver().workers()) == []


async def test_one_that_is_stopped_is_a_worker_and_can_be_killed(rig: Rig) -> None:
    driver = rig.driver()
    await driver.workers()
    await driver.start(FIRST, is_wanted=wanted)
    rig.freeze(FIRST)
    assert list(await driver.workers()) == [FIRST]
    await driver.release(FIRST, kills=True)
    await ended(driver)


async def words_of(driver: WorkerDriver) -> str:
    """Why a worker did not come up, from the start or from its end."""
    try:
        await driver.start(FIRST, is_wanted=wanted)
    except DriverError as error:
        return str(error)
    await ended(driver)
    return await driver.last_words(FIRST)


async def test_one_that_does_not_come_up_is_gone_and_says_why(rig: Rig) -> None:
    driver = rig.driver(MISTAKE)
    await driver.workers()
    assert "taskmanager.memory.task.size" in await words_of(driver)
    await ended(driver)
    assert await driver.last_words(SECOND) == ""


async def test_one_that_is_killed_is_gone(rig: Rig) -> None:
    driver = rig.driver()
    await driver.workers()
    await driver.start(FIRST, is_wanted=wanted)
    await driver.start(SECOND, is_wanted=wanted)
    rig.kill(FIRST)
    await ended(driver, SECOND)
    await ended(rig.driver(), SECOND)


async def test_all_are_ended_at_once(rig: Rig) -> None:
    driver = rig.driver()
    await driver.workers()
    await driver.start(FIRST, is_wanted=wanted)
    await driver.start(SECOND, is_wanted=wanted)
    await rig.driver().end_workers()
    assert list(await driver.workers()) == []


@pytest.mark.skipif(bool(NO_DOCKER), reason=NO_DOCKER)
async def test_a_stop_of_the_cluster_removes_its_containers(tmp_path: Path) -> None:
    with DockerRig() as rig:
        driver = rig.driver()
        await driver.start(FIRST, is_wanted=wanted)
        here = ProcessRig(tmp_path / "here")
        record = {"host": "unix:///nowhere.sock", "certificates": "", "cluster_id": rig.cluster_id}
        path = here.layout.run / "containers.json"
        path.write_text(json.dumps(record))
        done = await asyncio.to_thread(stop_cluster, here)
        assert done.returncode == 1
        assert "docker at unix:///nowhere.sock does not answer" in done.stderr
        assert f"docker ps --filter label=flinklike.cluster-id={rig.cluster_id}" in done.stderr
        path.write_text(json.dumps({**record, "host": docker_host()}))
        (here.layout.conf / "config.yaml").write_text("resourcemanager.drver: docker\n")
        done = await asyncio.to_thread(stop_cluster, here)
        assert done.returncode == 0, done.stderr
        assert "Stopped and removed 1 container(s)" in done.stdout
        assert rig.made() == []
        done = await asyncio.to_thread(stop_cluster, here)
        assert "container" not in done.stdout, "none is recorded any more"


def stop_cluster(rig: ProcessRig) -> subprocess.CompletedProcess[str]:
    command = [str(rig.layout.home / "bin" / "stop-cluster.sh")]
    return subprocess.run(command, env=rig.environment, capture_output=True, text=True, timeout=120, check=False)

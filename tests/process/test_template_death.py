"""An attempt whose template process is killed ends when nothing that it has started is alive (R29)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.gateways.job_master import SlotsDraining
from runtime.system.linux import children_of, is_alive
from tests.kit.cluster.task_manager_process import TaskManager, task_manager

pytestmark = [pytest.mark.process, pytest.mark.asyncio]

WRITE = "import sys, time\nwhile True:\n    open(sys.argv[1], 'a').write('x')\n    time.sleep(0.01)\n"


def leaves_daemon(directory: str) -> Callable[[Any], None]:
    """User code with a program in a session of its own, two forks away and without any environment."""
    text = WRITE

    def run(_ctx: Any) -> None:
        import os
        import sys
        import time

        written, told = f"{directory}/written", f"{directory}/pid"
        middle = os.fork()
        if middle == 0:
            os.setsid()
            pid = os.fork()
            if pid:
                os.write(os.open(told, os.O_WRONLY | os.O_CREAT), str(pid).encode())
                os._exit(0)
            os.execve(sys.executable, [sys.executable, "-c", text, written], {})
        os.waitpid(middle, 0)
        time.sleep(1000)

    return run


async def until(predicate: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not predicate():
            await asyncio.sleep(0.01)


def template_pid(manager: TaskManager) -> int:
    (template,) = [
        pid for pid in children_of(manager.main_pid()) if Path(f"/proc/{pid}/comm").read_text() == "slot-template\n"
    ]
    return template


async def begin(manager: TaskManager, tmp_path: Path) -> int:
    """The daemon of a task that runs."""
    await manager.wait_ready()
    await manager.run_job(leaves_daemon(str(tmp_path)), waits=False)
    await until((tmp_path / "written").exists)
    return int((tmp_path / "pid").read_text())


async def test_nothing_writes_any_more_when_the_report_is_there(tmp_path: Path) -> None:
    async with task_manager(tmp_path) as manager:
        daemon = await begin(manager, tmp_path)
        reports = len(manager.job_master.reports)
        os.kill(template_pid(manager), signal.SIGKILL)
        report = (await manager.job_master.wait_reports(reports + 1))[-1]
        alive = is_alive(daemon)
        assert report.state.name == "FAILED"
        assert report.failure is not None
        assert "the template process" in report.failure.message
        assert not alive, "its report was there before its end"


async def test_a_template_that_does_not_stop_leaves_nothing(tmp_path: Path) -> None:
    """Frozen, it is killed in the orderly stop."""
    async with task_manager(tmp_path) as manager:
        daemon = await begin(manager, tmp_path)
        os.kill(template_pid(manager), signal.SIGSTOP)
        manager.process.send_signal(signal.SIGTERM)
        await manager.job_master.wait_for(SlotsDraining)
        manager.process.send_signal(signal.SIGTERM)
        await until(lambda: manager.process.returncode is not None)
        assert not is_alive(daemon)

"""A process with a lease and a keeper for it, whose loop stands still when it is told to.

`python -m tests.kit.host.lease_holder -D ...` registers as a JobMaster process does and says on stdout, a line each,
when its registration is written (`registered`), and, asked on stdin: `valid` or `lapsed`. `stand still SECONDS`
blocks its loop.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from runtime.aio.entropy import SystemEntropy
from runtime.aio.scope import Scope
from runtime.common.ids import Incarnation
from runtime.common.version import VERSION
from runtime.entrypoint import process_options as options
from runtime.entrypoint.process import ProcessContext, run_process
from runtime.highavailability import services as ha_services
from runtime.highavailability.records import JobMasterRecord
from tests.kit.cluster.script_cluster import ROOT
from tests.kit.control_plane.memory_objects import MemoryObjectStore
from tests.kit.host.levels import reached


class Holder:
    """Implements `ClusterProcess`."""

    async def run(self, context: ProcessContext) -> None:
        """Hold a lease until cancelled."""
        ha = ha_services.create(
            options.high_availability_settings(context.configuration, context.layout),
            objects=MemoryObjectStore(),
            clock=context.clock,
            boot_clock=context.boot_clock,
            entropy=SystemEntropy(),
            lease_keeper=context.lease_keeper,
        )
        try:
            await ha.start()
            incarnation = Incarnation(os.environ["HOLDER"])
            record = JobMasterRecord(incarnation, "nowhere:1", capacity=1, jobs=0, state="ready", version=VERSION)
            registration = ha.job_master_registration(record)
            async with Scope("holder") as scope:
                scope.spawn_eternal("registration", registration.run())
                _ = await registration.registered.wait_until(bool)
                _say("registered")
                loop = asyncio.get_running_loop()

                def obey() -> None:
                    for line in sys.stdin:
                        if line.startswith("stand still"):
                            loop.call_soon_threadsafe(time.sleep, float(line.split()[-1]))
                        else:
                            # On this thread: what it says is right though the loop stands still.
                            _say("valid" if registration.is_valid else "lapsed")

                threading.Thread(target=obey, daemon=True).start()
                await loop.create_future()
        finally:
            await ha.close()


def _say(what: str) -> None:
    print(what, flush=True)


class LeaseHolder:
    """Such a process, as a test sees it."""

    def __init__(self, process: subprocess.Popen[str], incarnation: Incarnation) -> None:
        self._process = process
        self.incarnation = incarnation

    @property
    def pid(self) -> int:
        """Of the holder."""
        return self._process.pid

    @property
    def keeper(self) -> int:
        """Pid of its keeper."""
        (found,) = reached(self._children, "a keeper")
        return found

    def _children(self) -> list[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(child) for child in children]

    def stand_still(self, seconds: float) -> None:
        """Its loop, not the process."""
        self._tell(f"stand still {seconds}")

    def is_valid(self) -> bool:
        """What it thinks of its registration."""
        self._tell("is it valid?")
        return self.heard() == "valid"

    def heard(self, timeout: float = 20.0) -> str:
        """The next line that it says."""
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], timeout)[0], "it says nothing"
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        """SIGTERM, and wait."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(20)

    def _tell(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()


@contextmanager
def lease_holder(run: Path, dynamic: Sequence[str]) -> Iterator[LeaseHolder]:
    """One that is registered; killed at the end. What it prints to stderr goes to `run`/stderr."""
    incarnation = Incarnation(SystemEntropy().hex_id())
    run.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "HOLDER": incarnation,
        "FLINKLIKE_RUN_DIR": str(run),
        "FLINKLIKE_CONF_DIR": str(ROOT / "conf"),
    }
    command = [sys.executable, "-m", "tests.kit.host.lease_holder", *dynamic]
    pipe = subprocess.PIPE
    with (
        (run / "stderr").open("w") as stderr,
        subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=stderr, text=True) as process,
    ):
        holder = LeaseHolder(process, incarnation)
        try:
            assert holder.heard() == "registered", (run / "stderr").read_text()
            yield holder
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


if __name__ == "__main__":
    sys.exit(run_process("holder", Holder, sys.argv[1:], has_lease=True))

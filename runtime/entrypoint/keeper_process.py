"""The lease keeper (R40): a process that is forked once, before its parent, the lease's holder, has threads.

The keeper shares no interpreter, lock or connection with the holder, and ends with it. The holder renews the lease by
itself when the keeper has ended, or is late.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import traceback
from collections.abc import Callable
from typing import NoReturn

from runtime.aio.clock import BootClock, SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.options import high_availability as ha
from runtime.entrypoint import process_options as options
from runtime.highavailability.kv.keeper import HeldLease, KeptLease, SharedLease
from runtime.highavailability.services import HighAvailabilitySettings, lease_keeping
from runtime.system.linux import die_with_parent, set_process_name

logger = logging.getLogger(__name__)

_STOPPED = frozenset(b"TtZX")
"""States in /proc of a process that the system does not run: stopped, traced, ended."""
_STATE_BYTES_MAX = 4096


class KeeperProcess:
    """Implements `LeaseKeeper` in the holder. `ended` is a pipe whose other end only the keeper has."""

    def __init__(self, shared: SharedLease, pid: int, ended: int) -> None:
        self._shared = shared
        self._pid = pid
        self._ended = ended
        self._held = 0
        self.is_there = True

    def keep(self, held: HeldLease) -> None:
        """Renew this lease from now on. A repeated call shows that the holder's loop turns."""
        self._held = held.lease
        self._shared.say_held(held)

    def kept(self, lease: int) -> KeptLease | None:
        """The keeper's latest record of that lease, None when there is none."""
        kept = self._shared.kept()
        return kept if kept is not None and kept.lease == lease else None

    def release(self, lease: int) -> None:
        """Stop renewing that lease. Idempotent."""
        if lease == self._held:
            self._held = 0
            self._shared.say_held(HeldLease(0, 0.0, 0.0, 0.0))

    async def watch(self) -> None:
        """Wait for the end of the keeper, and log it."""
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._ended, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(self._ended)
        self.is_there = False
        status = self._reap()
        logger.error(
            "the lease keeper of this process (pid %d) has ended (%s): this process renews its lease by itself, and "
            "loses its role when its loop stands still for longer than high-availability.lease-timeout",
            self._pid,
            f"signal {-status}" if status < 0 else f"exit code {status}",
        )

    def stop(self) -> None:
        """End the keeper."""
        if self.is_there:
            self.is_there = False
            os.kill(self._pid, signal.SIGKILL)
            self._reap()
        os.close(self._ended)

    def _reap(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def fork_keeper(configuration: Configuration, layout: Layout) -> KeeperProcess | None:
    """Fork a keeper for the lease that this process is going to hold; None when leases are in its own memory."""
    if configuration.get(ha.HA_TYPE) != "etcd":
        return None
    shared = SharedLease()
    ended, alive = os.pipe()
    parent, state = os.getpid(), open_own_state()
    # Excludes shared pages from garbage collection, which would copy them.
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        os.close(ended)
        _run(shared, parent, state, lambda: options.high_availability_settings(configuration, layout))
    os.close(alive)
    os.close(state)
    return KeeperProcess(shared, pid, ended)


def _run(shared: SharedLease, parent: int, state: int, settings: Callable[[], HighAvailabilitySettings]) -> NoReturn:
    """The keeper's main function. No exception leaves it: the code above belongs to the forked process."""
    try:
        die_with_parent(parent)
        set_process_name("lease-keeper")
        # These signals are for the parent, which ends the keeper after its own orderly stop.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asyncio.run(_keep(shared, state, settings))
    except BaseException:  # noqa: BLE001 - the boundary of the process: the parent notices its end
        traceback.print_exc()
    finally:
        os._exit(1)


async def _keep(shared: SharedLease, state: int, settings: Callable[[], HighAvailabilitySettings]) -> None:
    # The keeper reads no file and dials no etcd before its parent holds a lease.
    while shared.held() is None:  # noqa: ASYNC110 - the parent writes it in shared memory
        await asyncio.sleep(_FIRST_LOOK)
    keeping = await lease_keeping(
        settings(), shared, SystemClock(), BootClock(), SystemEntropy(), is_stopped=lambda: is_stopped(state)
    )
    await keeping.run()


_FIRST_LOOK = 0.1


def open_own_state() -> int:
    """A descriptor by which `is_stopped` sees this process from another one.

    The other process could not open it: with hidepid, /proc hides a process that refuses tracing (R50).
    """
    return os.open("/proc/self/stat", os.O_RDONLY)


def is_stopped(state: int) -> bool:
    """True when the system does not run that process. Its threads may still be about to stop."""
    try:
        return os.pread(state, _STATE_BYTES_MAX, 0).rpartition(b")")[2].split()[0][0] in _STOPPED
    except OSError:
        return True

"""The keeper of a process's lease as a process beside it, on its host: what it decides is the product's own (R40)."""

from __future__ import annotations

from collections.abc import Callable

from runtime.common.clock import Clock
from runtime.highavailability.kv.keeper import HeldLease, Keeping, KeptLease, SharedLease
from runtime.highavailability.kv.key_value_store import KeyValueStore
from tests.kit.simulation.processes import Life, SimulatedProcess


class SimulatedKeeper:
    """`LeaseKeeper` of one life of a process. `beside` is where it runs; `make_kv` is called there."""

    def __init__(
        self,
        holder: SimulatedProcess,
        beside: SimulatedProcess,
        make_kv: Callable[[], KeyValueStore],
        clock: Clock,
        *,
        ttl: float,
        timeout: float,
    ) -> None:
        self.is_there = True
        self._holder = holder
        self._beside = beside
        self._shared = SharedLease()
        self._held = 0

        async def keep() -> None:
            keeping = Keeping(
                self._shared, make_kv(), clock, ttl=ttl, timeout=timeout, is_stopped=lambda: self._is_stopped
            )
            await keeping.run()

        _ = beside.start(f"{holder.name}/lease-keeper", keep())

    def keep(self, held: HeldLease) -> None:
        """Renew this one from now on."""
        self._held = held.lease
        self._shared.say_held(held)

    def kept(self, lease: int) -> KeptLease | None:
        """The latest word of that lease."""
        kept = self._shared.kept()
        return kept if kept is not None and kept.lease == lease else None

    def release(self, lease: int) -> None:
        """Renew that one no more."""
        if lease == self._held:
            self._shared.say_held(HeldLease(0, 0.0, 0.0, 0.0))

    def end(self) -> None:
        """With its process, at once."""
        self._beside.kill()

    @property
    def _is_stopped(self) -> bool:
        """What /proc says of the holder: one whose loop stands still looks as any other."""
        return self._holder.life is not Life.RUNNING and not self._holder.is_stuck

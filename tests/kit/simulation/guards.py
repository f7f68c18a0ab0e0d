"""The guards of a TaskManager: processes beside the main one, on its host, that outlive it for a moment (R13, R30).

Its liveness socket answers as long as anything of its TaskManager is alive, and states the end from then on, until the
next life on that host has told everybody. A frozen main process does not touch it. Guards that were killed, all of
them, state nothing: the next life ends what they have left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from runtime.common.errors import ConflictError
from runtime.heartbeat.core.death import Answered, ConnectionRefused, Dialled, NoAnswer
from runtime.taskexecutor.guard.channel import GuardChannel
from runtime.taskexecutor.guard.connection import GuardConnection
from runtime.taskexecutor.guard.records import boot_id
from tests.kit.simulation.network import ConnectionLostError, Listener, Network, RefusedError, Reply
from tests.kit.simulation.processes import Life, SimulatedProcess, current_process
from tests.kit.simulation.slots import SlotMachine

PORT = 7000


class _Knock:
    """What a dialler sends."""

    is_connection = True


class SimulatedGuard(GuardChannel):
    """One life of the guards; the TaskManager asks them to listen. `earlier`: those of the same host, oldest first."""

    def __init__(
        self, network: Network, process: SimulatedProcess, incarnation: str, earlier: Sequence[SimulatedGuard] = ()
    ) -> None:
        self.incarnation = incarnation
        self.is_reaped = False
        self._network = network
        self._process = process
        self._earlier = list(earlier)
        self._answer = f"{incarnation} {boot_id()}"

    def listen(self, host: str) -> int:
        """Its liveness socket, at the first port that none of those before it has."""
        assert host
        listener = Listener(self._process, self._on_request)
        for port in count(PORT):
            try:
                self._network.listen(self._process.name, port, listener)
            except ConflictError:
                continue
            return port
        raise AssertionError

    def _on_request(self, payload: Any, reply: Reply) -> None:
        assert isinstance(payload, _Knock), payload
        reply(f"{self._answer} reaped\n" if self.is_reaped else f"{self._answer}\n")

    def end(self) -> None:
        """Nothing of its TaskManager is left, and it says so."""
        self.is_reaped = True

    def kill(self) -> None:
        """All of them at once: the kernel closes the socket, and nobody has reaped anything."""
        if self._process.life is not Life.DEAD:
            self._process.kill()
            self._network.process_died(self._process)

    def earlier_lives(self, *, age: float) -> list[str]:
        """Those that are reaped."""
        assert age == 0.0, "the store is durable here"
        return [one.incarnation for one in self._earlier if one.is_reaped]

    def forget(self, incarnation: str) -> None:
        """It is stated no more."""
        for one in [one for one in self._earlier if one.incarnation == incarnation]:
            self._earlier.remove(one)
            one.kill()


class SimulatedGuardConnection(GuardConnection):
    """To the guard of a host's slots, which accepts every deadline and acts on it (R14)."""

    def __init__(self, machine: SlotMachine) -> None:
        self._machine = machine

    def open(self) -> None:
        """It is open."""

    def close(self) -> None:
        """It is not used any more."""

    async def hold(self, deadline: float, /) -> None:
        """Accepted."""
        self._machine.hold(deadline)

    async def state_end(self, seconds: float) -> None:
        """For as long as it is asked."""
        assert seconds >= 0

    async def sweep(self) -> str:
        """Slots of the simulation end with all that they have started."""
        return ""

    def mark_exclusive(self, pid: int) -> None:
        """A mover: slots have no processes here. It moves a file in one step, so none is frozen within one."""

    def unmark(self, pid: int) -> None:
        """As above."""


class GuardSockets:
    """What the diallers of the cluster reach."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def dial(self, address: str, timeout: float) -> Dialled:
        """Ask the guard at an address who it is."""
        try:
            answer = await self._network.request(current_process(), address, _Knock(), timeout=timeout)
        except RefusedError:
            return ConnectionRefused()
        except (TimeoutError, ConnectionLostError) as error:
            return NoAnswer(type(error).__name__)
        return Answered(str(answer))

"""The guard of a TaskManager: a process beside the main one, on the same host, that outlives it for a moment.

Its liveness socket answers as long as anything of its TaskManager is alive, and is refused from then on (R13). A frozen
main process does not touch it.
"""

from __future__ import annotations

from typing import Any

from runtime.common.errors import ConflictError
from runtime.heartbeat.core.death import Answered, ConnectionRefused, Dialled, NoAnswer
from runtime.taskexecutor.guard.channel import GuardChannel
from runtime.taskexecutor.guard.connection import GuardConnection
from runtime.taskexecutor.guard.guard_main import boot_id
from tests.kit.simulation.network import ConnectionLostError, Listener, Network, RefusedError, Reply
from tests.kit.simulation.processes import SimulatedProcess, current_process
from tests.kit.simulation.slots import SlotMachine

PORT = 7000


class _Knock:
    """What a dialler sends."""

    is_connection = True


class SimulatedGuard(GuardChannel):
    """One life of a guard; the TaskManager asks it to listen."""

    def __init__(self, network: Network, process: SimulatedProcess, incarnation: str) -> None:
        self.incarnation = incarnation
        self._network = network
        self._process = process
        self._answer = f"{incarnation} {boot_id()}\n"

    def listen(self, host: str) -> int:
        """Its liveness socket, where the one before it had its own, unless that one is still there."""
        assert host
        listener = Listener(self._process, self._on_request)
        try:
            address = self._network.listen(self._process.name, PORT, listener)
        except ConflictError:
            address = self._network.listen(self._process.name, PORT + 1, listener)
        return int(address.rpartition(":")[2])

    def _on_request(self, payload: Any, reply: Reply) -> None:
        assert isinstance(payload, _Knock), payload
        reply(self._answer)

    def end(self) -> None:
        """Nothing of its TaskManager is left: the kernel closes its socket."""
        self._process.kill()
        self._network.process_died(self._process)


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

    def mark_exclusive(self, pid: int) -> None:
        """Slots of the simulation have no processes."""
        raise AssertionError(pid)

    def unmark(self, pid: int) -> None:
        """As above."""
        raise AssertionError(pid)


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

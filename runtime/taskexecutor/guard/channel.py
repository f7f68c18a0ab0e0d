"""The line protocol between a guard and the main process that it started, and the main process's end of it.

One request a line, over a socket that the main process inherits. The guard answers LISTEN, HOLD, SWEEP and STATE_END.
Every other request counts as soon as it is sent, because the guard reads all requests before it acts on a deadline.
Standard library only: the guard loads this too.
"""

from __future__ import annotations

import socket
from collections.abc import MutableMapping
from pathlib import Path

from runtime.taskexecutor.guard.records import forget_life, reaped_lives

CONTROL_VARIABLE = "FLINKLIKE_GUARD_CONTROL"
INCARNATION_VARIABLE = "FLINKLIKE_INCARNATION"
RECORDS_VARIABLE = "FLINKLIKE_GUARD_RECORDS"
LISTEN = "listen"
LISTENING = "listening"
HOLD = "hold"
HELD = "held"
EXCLUSIVE = "exclusive"
SHARED = "shared"
SPARK = "spark"
REFUSED = "refused"
SWEEP = "sweep"
SWEPT = "swept"
STATE_END = "state"
STATING = "stating"
EXIT_START_AGAIN = 3
"""The main process asks for another life: the guard, once nothing of this one is left, begins again as another one."""
LINE_BYTES_MAX = 4096


class GuardChannel:
    """The requests of the main process to its guard at the start. Blocking; afterwards `control` belongs to a
    GuardConnection.
    """

    def __init__(self, control: socket.socket, incarnation: str, records: Path) -> None:
        self.control = control
        self.incarnation = incarnation
        self._records = records

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> GuardChannel | None:
        """The channel that a guard left for us, taken out of the environment; None without a guard."""
        descriptor = environment.pop(CONTROL_VARIABLE, None)
        incarnation = environment.pop(INCARNATION_VARIABLE, "")
        records = Path(environment.pop(RECORDS_VARIABLE, ""))
        if descriptor is None:
            return None
        control = socket.socket(fileno=int(descriptor))
        control.set_inheritable(False)
        return cls(control, incarnation, records)

    def listen(self, host: str) -> int:
        """Have the guard open its liveness socket on `host`; the port. Raises OSError with the guard's reason."""
        self.control.sendall(f"{LISTEN} {host}\n".encode())
        answer = b""
        while not answer.endswith(b"\n"):
            received = self.control.recv(LINE_BYTES_MAX)
            if not received:
                break
            answer += received
        word, _, rest = answer.decode().strip().partition(" ")
        if word != LISTENING:
            raise OSError(rest or "the guard has ended")
        return int(rest)

    def earlier_lives(self, *, age: float) -> list[str]:
        """Incarnations in this run directory of which everything was reaped, `age` seconds ago at least (R30)."""
        return [life for life in reaped_lives(self._records, age=age) if life != self.incarnation]

    def forget(self, incarnation: str) -> None:
        """Note that the store no longer has the key of an earlier life: the statement of its end stops."""
        forget_life(self._records, incarnation)

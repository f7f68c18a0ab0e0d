"""Whether a mover of outputs may go on, asked before each file: another mover may have taken its place (R27)."""

from __future__ import annotations

from collections.abc import Callable

from runtime.common.errors import FlinklikeError
from runtime.taskexecutor.outputs.turn_looks import MoveReplacedError, TurnLooks


class MoveStoppedError(FlinklikeError):
    """This mover has no permit any more: it has stopped, and another mover may go on."""


class MoveSupersededError(FlinklikeError):
    """The storage says that a later order is under way (R27)."""


ENDED = (MoveStoppedError, MoveSupersededError, MoveReplacedError)
"""Another mover goes on, or may."""


class Permit:
    """Asked before each file, on any thread. `loss`: why nothing exclusive may run here now (R14), "" if it may."""

    def __init__(self, loss: Callable[[], str] = str) -> None:
        self._loss = loss
        self._reason = ""

    def withdraw(self, reason: str) -> None:
        """From now on."""
        self._reason = self._reason or reason

    def check(self) -> None:
        """Raises MoveStoppedError."""
        if reason := self._reason or self._loss():
            raise MoveStoppedError(reason)


class HeldPermit:
    """The permit of a mover with a turn, which a repeat by hand may take away (R27)."""

    def __init__(self, permit: Permit, looks: TurnLooks) -> None:
        self._permit = permit
        self._looks = looks

    def check_itself(self) -> None:
        """Raises MoveStoppedError. Reads nothing."""
        self._permit.check()

    def check(self) -> None:
        """Blocking. Raises MoveStoppedError, MoveReplacedError, and what the storage says of a look."""
        self._permit.check()
        self._looks.check()

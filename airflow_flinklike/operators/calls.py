"""InterruptibleCalls: calls that the main thread can leave, at a signal, at a timeout, or at Airflow's own timeout.

Each call runs in a thread of its own. The main thread waits at a queue, where a signal handler can wake it. So
Airflow's timeout never raises within an HTTP client. An abandoned call runs on in its thread.
"""

from __future__ import annotations

import contextvars
import itertools
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class CallInterruptedError(Exception):
    """`interrupt` was called."""


@dataclass(frozen=True, slots=True)
class _Answer:
    number: int
    value: Any = None
    error: BaseException | None = None


class InterruptibleCalls:
    """Runs calls of the main thread, one after the other. Signal handlers may call `interrupt` only."""

    def __init__(self, *, silence: float | None = None, on_silence: Callable[[float], None] | None = None) -> None:
        """`on_silence` gets the time without an answer of a call, after every `silence` seconds."""
        self._silence = silence
        self._on_silence = on_silence
        # The one queue whose `put` may be called in a signal handler, while the same thread waits in `get`.
        self._answers: queue.SimpleQueue[_Answer | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._is_interrupted = False

    def interrupt(self) -> None:
        """Make the running call and all later ones raise CallInterruptedError."""
        self._is_interrupted = True
        self._answers.put(None)

    def check(self) -> None:
        """Raises CallInterruptedError after `interrupt`."""
        if self._is_interrupted:
            raise CallInterruptedError

    def run(self, call: Callable[[], T], *, timeout: float | None = None) -> T:
        """Return or raise what the call does. Raises TimeoutError after `timeout` seconds, and CallInterruptedError."""
        self.check()
        number = next(self._numbers)
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=(self._answer, number, call), name=f"flinklike-call-{number}", daemon=True
        )
        thread.start()
        answer = self._wait_for(number, timeout)
        if answer.error is not None:
            raise answer.error
        value: T = answer.value
        return value

    def __reduce__(self) -> tuple[type[InterruptibleCalls], tuple[()]]:
        """Airflow copies operators, also during a call: the copy is a new object without calls."""
        return InterruptibleCalls, ()

    def _wait_for(self, number: int, timeout: float | None) -> _Answer:
        silent_for = 0.0
        while True:
            try:
                answer = self._answers.get(timeout=self._silence if timeout is None else timeout)
            except queue.Empty:
                if timeout is not None:
                    message = f"no answer within {timeout:g} s"
                    raise TimeoutError(message) from None
                silent_for += self._silence or 0.0
                if self._on_silence is not None:
                    self._on_silence(silent_for)
                continue
            if answer is None:
                raise CallInterruptedError
            if answer.number == number:  # else that of an abandoned call
                return answer

    def _answer(self, number: int, call: Callable[[], Any]) -> None:
        try:
            self._answers.put(_Answer(number, value=call()))
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._answers.put(_Answer(number, error=error))

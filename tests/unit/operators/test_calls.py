"""The main thread leaves a call: at a signal, a timeout, or an exception that a signal handler raises."""

import contextvars
import copy
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_flinklike.operators.calls import CallInterruptedError, InterruptibleCalls


class HandlerError(BaseException):
    """Stands for Airflow's timeout: a handler raises it wherever the main thread is."""


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """The event that a silent call waits for. The fixture sets it at the end, so that the thread ends."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def on_signal() -> Iterator[Any]:
    """Installs a handler of SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR1, before)


def signalling(entered: threading.Event, never: threading.Event) -> None:
    """A call that signals its process and then does not return."""
    entered.set()
    os.kill(os.getpid(), signal.SIGUSR1)
    never.wait()


def test_values_and_errors_come_back_in_order() -> None:
    calls = InterruptibleCalls()
    assert [calls.run(lambda n=n: n * n) for n in range(5)] == [0, 1, 4, 9, 16]  # type: ignore[misc]  # n is bound
    with pytest.raises(ZeroDivisionError):
        calls.run(lambda: 1 / 0)
    with pytest.raises(HandlerError):
        calls.run(_raise_base)
    assert calls.run(lambda: "still there") == "still there"


def _raise_base() -> None:
    raise HandlerError


def test_the_context_of_the_caller_is_seen() -> None:
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("given")
    assert InterruptibleCalls().run(variable.get) == "given"


def test_a_signal_handler_breaks_the_wait(never: threading.Event, on_signal: Any) -> None:
    calls = InterruptibleCalls()
    on_signal(lambda *_: calls.interrupt())
    entered = threading.Event()
    with pytest.raises(CallInterruptedError):
        calls.run(lambda: signalling(entered, never), timeout=30)
    assert entered.is_set()


def test_a_handler_that_raises_leaves_nothing_behind(never: threading.Event, on_signal: Any) -> None:
    def raising(*_: Any) -> None:
        raise HandlerError

    calls = InterruptibleCalls()
    on_signal(raising)
    with pytest.raises(HandlerError):
        calls.run(lambda: signalling(threading.Event(), never), timeout=30)
    never.set()  # its answer comes late, and is not taken for another's
    assert calls.run(lambda: "next") == "next"


def test_after_an_interrupt_nothing_is_called() -> None:
    calls = InterruptibleCalls()
    calls.interrupt()
    called: list[int] = []
    for _ in range(2):
        with pytest.raises(CallInterruptedError):
            calls.run(lambda: called.append(1))
    assert not called


def test_silence_is_told(never: threading.Event) -> None:
    told: list[float] = []

    def tell(seconds: float) -> None:
        told.append(seconds)
        if len(told) == 3:
            never.set()

    calls = InterruptibleCalls(silence=0.01, on_silence=tell)
    assert calls.run(never.wait) is True
    assert told[:3] == pytest.approx([0.01, 0.02, 0.03])


def test_copies_are_as_new() -> None:
    calls = InterruptibleCalls()
    calls.interrupt()
    assert copy.deepcopy(calls).run(lambda: 1) == 1


def test_a_call_that_takes_too_long_is_left(never: threading.Event) -> None:
    calls = InterruptibleCalls()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        calls.run(never.wait, timeout=0.01)
    never.set()
    assert calls.run(lambda: "next", timeout=30) == "next"

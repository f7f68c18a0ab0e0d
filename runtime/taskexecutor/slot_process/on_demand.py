"""Runs a source that takes its splits on demand: a generator yields a DataFrame for each, which is written at once.

So the next split is asked for when the rows of the last one are written, and a slow one holds back nobody else (R12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from runtime.gateways.task import PartitionDescriptor
from runtime.jobgraph.graph import Operator
from runtime.taskexecutor.slot_process.causes import MisuseError, TaskError
from runtime.taskexecutor.slot_process.exchange import Exchange
from runtime.taskexecutor.slot_process.script import returned_by
from runtime.taskexecutor.slot_process.spark_attachment import is_data_frame
from runtime.taskexecutor.slot_process.split_reader import SplitReader
from runtime.taskexecutor.slot_process.task_context import AttemptState, SlotTaskContext

_END = object()
HandOver = Callable[[Operator, Any], Any]


def _step(made: Iterator[Any]) -> tuple[Any]:
    """The next value, _END after the last one. In a tuple, so that a None of user code is no end."""
    return (next(made, _END),)


class OnDemandSource:
    """One attempt of such a source, with the operators that are chained to it."""

    def __init__(
        self,
        operators: Sequence[Operator],
        functions: Sequence[Callable[..., Any]],
        exchange: Exchange,
        state: AttemptState,
        hand_over: HandOver,
    ) -> None:
        """`hand_over`: makes a value the input of the next operator of the chain."""
        self._operators = operators
        self._functions = functions
        self._exchange = exchange
        self._state = state
        self._hand_over = hand_over
        self._values: list[Any] = []
        self._is_written = False

    def run(self) -> tuple[Any, tuple[PartitionDescriptor, ...] | None]:
        """What the chain has returned, and what is written already; None for what is to be written still."""
        name = self._operators[0].name
        reader = SplitReader(name, self._state.channel, self._exchange.all_splits(self._state.splits))
        self._state.reader = reader
        value = returned_by(self._functions[0], SlotTaskContext(self._state, name))
        if isinstance(value, Iterator):
            self._drain(value)
            value = self._values
        elif is_data_frame(value):
            message = (
                f"{name!r} takes its splits on demand and returned a DataFrame, for which it had to take all of them "
                "before any was read: yield one for each split"
            )
            raise MisuseError(message)
        reader.check_exhausted()
        if self._is_written:
            return None, self._exchange.appended()
        if value is self._values and not value and self._exchange.has_outputs:
            return None, self._exchange.nothing()
        return self._chain(value), None

    def _drain(self, made: Iterator[Any]) -> None:
        while (step := returned_by(_step, made)) is not None:  # None: sys.exit(0)
            if (one := step[0]) is _END:
                return
            if is_data_frame(one):
                self._write(one)
            elif one is not None:
                self._values.append(one)
            else:
                message = f"{self._operators[0].name!r} yielded None: yield a DataFrame or a JSON value, or nothing"
                raise TaskError(message)
            if self._values and self._is_written:
                message = f"{self._operators[0].name!r} yielded DataFrames and JSON values: yield one kind"
                raise TaskError(message)

    def _write(self, frame: Any) -> None:
        if not self._exchange.has_outputs:
            message = (
                f"{self._operators[-1].name!r} has no consumer and yielded a DataFrame: write it in the function "
                "(a DataFrame has no place to go at the end of a job)"
            )
            raise MisuseError(message)
        frame = self._chain(frame)
        if not is_data_frame(frame):
            message = (
                f"{self._operators[-1].name!r} is chained behind splits on demand and returned a "
                f"{type(frame).__name__} for a DataFrame: return a DataFrame, or put rebalance() between"
            )
            raise TaskError(message)
        self._exchange.append(self._operators[-1].name, frame)
        self._is_written = True

    def _chain(self, value: Any) -> Any:
        for before, operator, function in zip(self._operators, self._operators[1:], self._functions[1:], strict=False):
            value = returned_by(function, SlotTaskContext(self._state, operator.name), self._hand_over(before, value))
        return value

"""FunctionCall: a function with its arguments, pickled by the client and called in the slot process.

A module of its own that imports nothing heavy: each slot process loads it with its first function job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.jobgraph.task_context import TaskContext

INJECTED: Mapping[str, Callable[[TaskContext], Any]] = {
    "ctx": lambda ctx: ctx,
    "spark": lambda ctx: ctx.spark,
    "sc": lambda ctx: ctx.spark.sparkContext,
}
"""Parameters that the slot process fills in. `sc` is for functions written for @task.pyspark."""


@dataclass(frozen=True)
class FunctionCall:
    """The function with its arguments. `injected` names the parameters that are added where it runs."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    injected: tuple[str, ...]

    def __call__(self, ctx: TaskContext) -> Any:
        """Call the function with its own and the injected arguments."""
        given = {name: INJECTED[name](ctx) for name in self.injected}
        return self.function(*self.args, **self.kwargs, **given)

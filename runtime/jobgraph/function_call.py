"""The call that a function job is: pickled by the client, called on the slot.

Here, and with nothing to import, because each slot process that runs such a job for the first time loads it.
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
"""Parameters that are filled in on the slot. `sc` is one of @task.pyspark's."""


@dataclass(frozen=True)
class FunctionCall:
    """What is pickled: the function with its arguments. The injected ones are added where it runs."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    injected: tuple[str, ...]

    def __call__(self, ctx: TaskContext) -> Any:
        """Call it with all of its arguments."""
        given = {name: INJECTED[name](ctx) for name in self.injected}
        return self.function(*self.args, **self.kwargs, **given)

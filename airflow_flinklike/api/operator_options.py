"""Options of one operator of a pipeline: what a user may set, what is refused, and what holds where nothing is set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Literal, TypedDict, TypeVar, Union, get_args, get_origin, get_type_hints

from airflow_flinklike.exceptions import PipelineError
from runtime.jobgraph.graph import ResourceSpec
from runtime.jobgraph.limits import PARALLELISM_MAX

T = TypeVar("T")

MAX_PARALLELISM_FLOOR = 128

AUTO = "auto"
"""A parallelism that the cluster chooses, also for an operator without consumers."""


class MapOptions(TypedDict, total=False):
    """Options of an operator whose input dictates its parallelism. An option that is None is the same as no option."""

    max_parallelism: int | None
    """Upper bound of the parallelism. Default: that of the inputs over forward edges, else by the parallelism."""
    slot_sharing_group: str | None
    """Operators of one group share slots. Default: the group of the inputs where they agree, else 'default'."""
    resources: ResourceSpec | None
    """What one subtask needs of a slot. Default: that of the inputs where they agree, else DEFAULT_RESOURCES."""
    exclusive: bool | None
    """True: a subtask must never run twice at the same time. Default: True for operators without consumers."""
    chainable: bool
    """False: the operator runs in a task of its own. Default: True."""


class OperatorOptions(MapOptions, total=False):
    """Options of any other operator."""

    parallelism: int | Literal["auto"] | None
    """Number of subtasks. Forward and gather edges dictate it. Default: that of the pipeline, else the cluster chooses
    it by what the operator reads; an operator without consumers then runs once. "auto": the cluster chooses it also
    there, and the result is the list of what the subtasks have returned.
    """
    rows_per_task: int | None
    """Where the cluster chooses: the most rows that one subtask should read. Default: only bytes count."""


_WORDS: Mapping[type, str] = {
    int: "a whole number",
    str: "a text",
    ResourceSpec: "a ResourceSpec",
    bool: "True or False",
}
_AUTO_TOO: Mapping[str, str] = {"parallelism": f", or {AUTO!r}"}


@cache
def _types() -> Mapping[str, tuple[type, ...]]:
    hints = get_type_hints(OperatorOptions)
    given = {
        name: get_args(hint) if get_origin(hint) in {UnionType, Union} else (hint,) for name, hint in hints.items()
    }
    return {name: tuple(one for one in types if isinstance(one, type)) for name, types in given.items()}


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raises PipelineError that lists all options of a wrong type."""
    if options.get("parallelism") == AUTO:
        options = {**options, "parallelism": None}
    problems = tuple(
        f"operator {name!r}: {key} is {_WORDS[types[0]]}{_AUTO_TOO.get(key, '')}, not {options[key]!r}"
        for key, types in _types().items()
        if key in options and not _is_of(options[key], types)
    )
    if problems:
        raise PipelineError("; ".join(problems), problems)


def _is_of(value: object, types: tuple[type, ...]) -> bool:
    """True is an int for Python, and a mistake where a number is expected."""
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def inherited(given: T | None, inputs: Sequence[T], default: T) -> T:
    """What the user has set, else what all inputs agree on, else the default."""
    if given is not None:
        return given
    return inputs[0] if inputs and all(one == inputs[0] for one in inputs) else default


def default_max_parallelism(parallelism: int) -> int:
    """Flink's default: the next power of two above 1.5 times the parallelism, within 128 and 32768."""
    wanted = parallelism + parallelism // 2
    power = 1 << max(wanted - 1, 0).bit_length()
    return min(max(power, MAX_PARALLELISM_FLOOR), PARALLELISM_MAX)

"""The streaming side of a pipeline: triggers as users write them, and the vertex of one streaming query."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_flinklike.api.operator_code import UserFunction
from airflow_flinklike.exceptions import PipelineError
from runtime.jobgraph.streams import StreamTrigger, TriggerKind

Trigger = str | Mapping[str, Any]

_BATCH_ARGUMENTS = 3
_REFUSED = {
    "once": "use availableNow, which reads the same in batches of the sizes that the source asks for",
    "continuous": "it keeps no state and makes no batches, which checkpoints count; use realTime or processingTime",
}


def trigger_of(name: str, given: object) -> StreamTrigger | None:
    """Spark's trigger: `{"processingTime": "10 seconds"}`, `{"availableNow": True}`, `{"realTime": "5 minutes"}`, or a
    text: an interval, or "availableNow". Raises PipelineError.
    """
    if given is None:
        return None
    if isinstance(given, str):
        is_word = given == TriggerKind.AVAILABLE_NOW.value or given in _REFUSED
        given = {given: True} if is_word else {TriggerKind.PROCESSING_TIME.value: given}
    if not isinstance(given, Mapping) or len(given) != 1:
        message = (
            f"operator {name!r}: a trigger is an interval such as '10 seconds', 'availableNow', or one of Spark's with "
            f"its value, {{'processingTime': '10 seconds'}}, not {str(given)[:80]!r}"
        )
        raise PipelineError(message)
    ((key, value),) = given.items()
    if key in _REFUSED:
        message = f"operator {name!r}: the trigger {key!r} is not supported: {_REFUSED[key]}"
        raise PipelineError(message)
    try:
        kind = TriggerKind(key)
    except ValueError:
        known = ", ".join(one.value for one in TriggerKind)
        message = f"operator {name!r}: {key!r} is no trigger, expected one of {known}"
        raise PipelineError(message) from None
    if kind is TriggerKind.AVAILABLE_NOW:
        if value is not True:
            message = f"operator {name!r}: availableNow is True, or no trigger at all, not {value!r}"
            raise PipelineError(message)
        return StreamTrigger(kind=kind)
    if not isinstance(value, str):
        message = f"operator {name!r}: the interval of {key} is a text like '10 seconds', not {value!r}"
        raise PipelineError(message)
    return StreamTrigger(kind=kind, interval=value)


def is_batch_function(name: str, function: UserFunction, given: bool | None) -> bool:  # noqa: FBT001 - True, False or unknown
    """True for `fn(ctx, batch, batch_id)`, False for `fn(ctx, df)`. `given` decides where the signature does not.

    Raises PipelineError for a function of neither form.
    """
    counts = _counts(function)
    if given is not None:
        wanted = _BATCH_ARGUMENTS if given else _BATCH_ARGUMENTS - 1
        if counts is None or wanted in counts:
            return given
        message = f"operator {name!r}: foreach_batch={given} takes a function of {wanted} arguments, this has {counts}"
        raise PipelineError(message)
    if counts is None:
        message = (
            f"operator {name!r}: how many arguments its function takes is not known here: say foreach_batch=True for "
            "fn(ctx, batch, batch_id), False for fn(ctx, df), which returns a DataStreamWriter"
        )
        raise PipelineError(message)
    forms = [count for count in (_BATCH_ARGUMENTS - 1, _BATCH_ARGUMENTS) if count in counts]
    if len(forms) != 1:
        message = (
            f"operator {name!r}: a stream sink is fn(ctx, df), which returns a DataStreamWriter, or fn(ctx, batch, "
            f"batch_id); this one may be called with {'both' if forms else 'neither'}: see foreach_batch="
        )
        raise PipelineError(message)
    return forms[0] == _BATCH_ARGUMENTS


def _counts(function: UserFunction) -> Sequence[int] | None:
    """With how many positional arguments, of two and three, it can be called; None if nobody can tell here."""
    if isinstance(function, str):
        return None
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    return [count for count in (_BATCH_ARGUMENTS - 1, _BATCH_ARGUMENTS) if _can_take(signature, count)]


def _can_take(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def ancestors(sink: str, inputs: Mapping[str, Iterable[str]], order: Sequence[str]) -> tuple[str, ...]:
    """The operators of the query that ends in `sink`, producers before consumers. `inputs`: streaming ones only."""
    found, pending = {sink}, [sink]
    while pending:
        for name in inputs.get(pending.pop(), ()):
            if name not in found:
                found.add(name)
                pending.append(name)
    return tuple(name for name in order if name in found)

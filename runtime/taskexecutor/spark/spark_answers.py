"""Reads what the Spark host says of an attempt's work (R52): jobs run in its JVM, so that it may say anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import TypeAdapter

from runtime.checkpoint.savepoint.descriptions import source_descriptions
from runtime.common.masking import masked
from runtime.common.printable import printable
from runtime.common.stream_progress import ScriptLook, ScriptQuery, StreamLook, StreamPosition, StreamProgress
from runtime.gateways.process import ConfValue
from runtime.gateways.spark_work import (
    NAME_LENGTH_MAX,
    PLAN_LENGTH_MAX,
    QUERIES_MAX,
    STAGES_LIVE_MAX,
    SparkQuery,
    SparkStage,
    SparkWork,
    work_of,
)
from runtime.jobgraph.streams import is_state_name
from runtime.taskexecutor.spark_protocol.sessions import SparkProgress

_COUNT_MAX = 1 << 50
_PROGRESS_MAX = 1 << 62
_STREAMS_MAX = 20
_PHASES_MAX = 20
_ID_LENGTH_MAX = 60
_PLACE_LENGTH_MAX = 400
_SINK_LENGTH_MAX = 4096
_STAGES_READ_MAX = 1000


@dataclass(frozen=True, slots=True)
class WorkAsked:
    """Which work: of one session, between the begin and the end of an attempt; `until_millis` 0 while it runs."""

    session_id: str
    since_millis: int
    until_millis: int = 0


@dataclass(frozen=True, slots=True)
class _Told:
    jobs: int
    jobs_failed: int
    stages: tuple[SparkStage, ...]
    queries: tuple[SparkQuery, ...]


_TOLD = TypeAdapter(_Told)
_PROGRESS = TypeAdapter(dict[str, SparkProgress])
_POSITIONS = TypeAdapter(tuple[StreamPosition, ...])
_LOOK = TypeAdapter(StreamLook)
_SCRIPT_LOOK = TypeAdapter(ScriptLook)
_SCRIPT_QUERIES_MAX = 1000

JVM_FIGURES = ("heap_used", "heap_committed", "heap_max", "non_heap_used", "threads", "gc_count", "gc_millis")
_FIGURES = TypeAdapter(dict[str, int])
_CONF = TypeAdapter(dict[str, str])
_CONF_MAX = 500
_VALUE_LENGTH_MAX = 1000


def read_progress(value: Any) -> dict[str, SparkProgress]:
    """What the sessions do, by id. Raises ValueError."""
    found = _PROGRESS.validate_python(value)
    for progress in found.values():
        counts = [count for name, count in _fields_of(progress).items() if name != "streams"]
        is_counted = all(0 <= count < _PROGRESS_MAX for count in counts)
        if not is_counted or len(progress.streams) > _STREAMS_MAX or not all(map(_is_query, progress.streams)):
            message = f"no counts: {progress}"[:500]
            raise ValueError(message)
    return found


def _is_query(stream: StreamProgress) -> bool:
    told = _fields_of(stream)
    numbers = [value for value in told.values() if isinstance(value, int | float)]
    texts = [stream.query_id, stream.run_id, stream.name, *(phase.name for phase in stream.phases)]
    return (
        all(-1 <= number < _PROGRESS_MAX for number in numbers)
        and len(stream.phases) <= _PHASES_MAX
        and all(len(text) <= _ID_LENGTH_MAX and printable(text) == text for text in texts)
        and all(len(text) <= _PLACE_LENGTH_MAX and printable(text) == text for text in (stream.thread, stream.stage))
        and all(0 <= phase.millis < _PROGRESS_MAX for phase in stream.phases)
    )


def _fields_of(record: SparkProgress | StreamProgress) -> dict[str, Any]:
    """The fields of a record, as they are."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def read_positions(value: Any) -> tuple[StreamPosition, ...]:
    """The positions of a session's queries. Raises ValueError."""
    found = _POSITIONS.validate_json(value)
    for position in found:
        _check_position(position)
    return found


def _check_position(position: StreamPosition) -> None:
    numbers = (position.batch_id, position.state_rows, position.state_bytes)
    is_id = len(position.query_id) <= _ID_LENGTH_MAX and printable(position.query_id) == position.query_id
    if not is_id or not all(-1 <= number < _PROGRESS_MAX for number in numbers):
        message = f"no position: {position}"[:500]
        raise ValueError(message)


def read_look(value: Any) -> StreamLook:
    """How far a session's query is. Raises ValueError."""
    found = _LOOK.validate_json(value)
    if found.position is not None:
        _check_position(found.position)
    _check_sink(found.sink)
    return replace(found, sources=source_descriptions(found.sources))


def _check_sink(sink: str) -> None:
    if len(sink) > _SINK_LENGTH_MAX:
        message = f"the description of a sink is longer than {_SINK_LENGTH_MAX} characters"
        raise ValueError(message)


def read_script_look(value: Any) -> ScriptLook:
    """How far the queries of a session's script are, each with its name. Raises ValueError."""
    found = _SCRIPT_LOOK.validate_json(value)
    names = [query.name for query in found.queries]
    is_too_long = max(len(names), len(found.awaited)) > _SCRIPT_QUERIES_MAX
    if is_too_long or len(set(names)) < len(names) or not all(map(is_state_name, (*names, *found.awaited))):
        message = f"no names of queries: {names[:3]}"[:500]
        raise ValueError(message)
    for query in found.queries:
        _check_position(query.position)
        _check_sink(query.sink)
    return replace(found, queries=tuple(map(_script_query, found.queries)))


def _script_query(told: ScriptQuery) -> ScriptQuery:
    return replace(told, position=replace(told.position, name=told.name), sources=source_descriptions(told.sources))


def read_figures(value: Any) -> dict[str, int]:
    """Heap and garbage collection. Raises ValueError."""
    told = _FIGURES.validate_python(value)
    return {name: _count(told.get(name, -1)) for name in JVM_FIGURES}


def read_conf(value: Any) -> dict[str, str]:
    """Spark's conf. Raises ValueError."""
    return _CONF.validate_python(value)


def masked_conf(conf: Mapping[str, str]) -> tuple[ConfValue, ...]:
    """For people, without values that are secrets, and bounded."""
    return tuple(
        ConfValue(printable(key)[:NAME_LENGTH_MAX], printable(masked(key, conf[key]))[:_VALUE_LENGTH_MAX])
        for key in sorted(conf)[:_CONF_MAX]
    )


def read_work(value: Any, stages_max: int = STAGES_LIVE_MAX) -> tuple[SparkWork, tuple[SparkQuery, ...]]:
    """The work with its longest stages, and its queries, the newest first. Raises ValueError."""
    told = _TOLD.validate_json(str(value))
    stages = [_stage(one) for one in told.stages[:_STAGES_READ_MAX]]
    queries = tuple(_query(one) for one in told.queries[:QUERIES_MAX])
    work = work_of(_count(told.jobs), _count(told.jobs_failed), stages, stages_max)
    return work, queries


def _stage(one: SparkStage) -> SparkStage:
    for field in fields(one):
        value = getattr(one, field.name)
        if isinstance(value, int):
            _count(value)
    return replace(one, name=printable(one.name)[:NAME_LENGTH_MAX], state=printable(one.state)[:40])


def _query(one: SparkQuery) -> SparkQuery:
    for number in (one.query_id, one.submitted_millis, one.completed_millis):
        _count(number)
    return replace(
        one,
        description=printable(one.description)[:NAME_LENGTH_MAX],
        plan=printable(one.plan)[:PLAN_LENGTH_MAX],
    )


def _count(number: int) -> int:
    if not -1 <= number <= _COUNT_MAX:
        message = f"{number} counts nothing of Spark's"
        raise ValueError(message)
    return number

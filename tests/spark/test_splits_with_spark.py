"""Sources that take their splits on demand, with Spark: each DataFrame that they yield is written at once (R12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from runtime.common.exchange import ExchangeMode, InputShare
from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState
from runtime.gateways.task import InputGate, PartitionKind, TaskExecutionReport
from runtime.jobgraph.graph import OperatorKind
from runtime.jobgraph.splits import NO_SPLIT
from tests.kit.spark.slot_box import SlotBox, gate, out
from tests.kit.spark.slot_work import RecordingListener, operator
from tests.kit.spark.spark_box import SparkBox

pytestmark = pytest.mark.timeout(600)  # one JVM per module, and it may have to wait for its turn

HASH, REBALANCE, BROADCAST, GATHER = (
    ExchangeMode.HASH,
    ExchangeMode.REBALANCE,
    ExchangeMode.BROADCAST,
    ExchangeMode.GATHER,
)
SPLITS = [0, 100, 200, 300]


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    box = SlotBox(shared_box, tmp_path_factory.mktemp("on-demand"))
    yield box
    box.stop()


class Owner(RecordingListener):
    """Hands out these splits, one for each request, then none."""

    def __init__(self, slots: SlotBox, splits: list[int]) -> None:
        super().__init__()
        self._pool = slots.pool
        self._splits = splits

    def split_wanted(self, attempt_id: ExecutionAttemptId, sequence: int) -> None:
        super().split_wanted(attempt_id, sequence)
        self._pool.give_split(attempt_id, self._splits.pop(0) if self._splits else NO_SPLIT)


def read(
    slots: SlotBox, function: Callable[..., Any], *maps: Callable[..., Any], outputs: Any, given: Any, subtask: int = 0
) -> TaskExecutionReport:
    """One task of a source that is given these of the splits."""
    operators = [operator(function, "read", OperatorKind.SOURCE)]
    operators += [operator(one, f"map {place}", OperatorKind.MAP) for place, one in enumerate(maps)]
    made = slots.work(*operators, splits=SPLITS, outputs=outputs, subtask=subtask, parallelism=2)
    made = replace(made, task=replace(made.task, task=replace(made.task.task, splits_on_demand=True)))
    owner = Owner(slots, [*given])
    slots.do(slots.pool.run(0, made, owner))
    return owner.reports[-1]


def numbers(ctx: Any) -> Any:
    """100 ids for each split."""
    for first in ctx.next_splits():
        yield ctx.spark.range(first, first + 100)


def ids(ctx: Any, *frames: Any) -> Any:
    return [sorted(row.id for row in frame.collect()) for frame in frames]


def consume(slots: SlotBox, inputs: list[InputGate], *, subtask: int = 0, parallelism: int = 1) -> list[list[int]]:
    found: list[list[int]] = slots.value(
        slots.work(ids, subtask=subtask, parallelism=parallelism, inputs=tuple(inputs))
    )
    return found


def test_all_edges_get_the_rows_of_each_split_once(slots: SlotBox) -> None:
    specs = (out(HASH, 3, "id"), replace(out(BROADCAST, 2), output=1), replace(out(REBALANCE, 2), output=2))
    first = read(slots, numbers, outputs=specs, given=[3, 0])
    second = read(slots, numbers, outputs=specs, given=[1, 2], subtask=1)
    assert (first.state, second.state) == (ExecutionState.FINISHED, ExecutionState.FINISHED)
    assert first.metrics.write_records == 600
    assert sum(file.rows for file in first.partitions[0].files) == 200
    produced = [first.partitions, second.partitions]
    hashed = [
        consume(slots, [gate(HASH, [(one[0],) for one in produced], "id")], subtask=i, parallelism=3)[0]
        for i in range(3)
    ]
    assert sorted(chain.from_iterable(hashed)) == list(range(400))
    assert all(hashed)
    assert consume(slots, [gate(BROADCAST, [(one[1],) for one in produced])])[0] == list(range(400))
    balanced = [
        consume(slots, [gate(REBALANCE, [(one[2],) for one in produced])], subtask=i, parallelism=2)[0]
        for i in range(2)
    ]
    assert sorted(chain.from_iterable(balanced)) == list(range(400))


def test_dynamic_edges_have_the_rows_of_each_split_in_their_subpartitions(slots: SlotBox) -> None:
    def grows(ctx: Any) -> Any:
        for first in ctx.next_splits():
            rows = ctx.spark.range(first, first + 100)
            yield rows.repartition(7) if first else rows.coalesce(1)

    spec = replace(out(HASH, 6, "id"), is_dynamic=True)
    made = read(slots, grows, outputs=(spec,), given=[0, 1, 2, 3])
    assert made.state is ExecutionState.FINISHED, made.failure
    found = []
    for first in range(0, 6, 2):
        base = gate(HASH, [made.partitions], "id")
        found += consume(slots, [replace(base, share=InputShare(first, first + 2), subpartitions=6)])[0]
    assert sorted(found) == list(range(400))


def test_what_is_yielded_is_written_before_the_next_split_is_asked_for(slots: SlotBox, tmp_path: Path) -> None:
    place = str(tmp_path)

    def from_files(ctx: Any) -> Any:
        import shutil

        for first in ctx.next_splits():
            ctx.spark.range(first, first + 100).write.parquet(f"{place}/{first}")
            yield ctx.spark.read.parquet(f"{place}/{first}")
            shutil.rmtree(f"{place}/{first}")  # a later look would find nothing

    made = read(slots, from_files, outputs=(out(GATHER, 1),), given=[0, 2])
    assert made.state is ExecutionState.FINISHED, made.failure
    assert consume(slots, [gate(GATHER, [made.partitions])])[0] == [*range(100), *range(200, 300)]


def test_what_is_chained_gets_each_data_frame_by_itself(slots: SlotBox) -> None:
    def largest(ctx: Any, frame: Any) -> Any:
        return frame.selectExpr("max(id) as id")

    made = read(slots, numbers, largest, outputs=(out(GATHER, 1),), given=[0, 3])
    assert consume(slots, [gate(GATHER, [made.partitions])])[0] == [99, 399]


def test_a_task_without_splits_leaves_the_columns_to_others(slots: SlotBox) -> None:
    nothing = read(slots, numbers, outputs=(out(GATHER, 1),), given=[])
    assert [one.kind for one in nothing.partitions] == [PartitionKind.NOTHING]
    work = slots.work(ids, inputs=(gate(GATHER, [nothing.partitions]),))
    assert "yielded nothing, since it had no splits or found nothing in them" in slots.failure(work).message


def other_columns(ctx: Any) -> Any:
    for first in ctx.next_splits():
        yield ctx.spark.range(1).selectExpr("id" if first else "id as other")


def returns(ctx: Any) -> Any:
    frames = [ctx.spark.range(first) for first in ctx.next_splits()]
    return frames[0].union(frames[1])


def both_kinds(ctx: Any) -> Any:
    for first in ctx.next_splits():
        yield [first] if first else ctx.spark.range(1)


def number(ctx: Any, frame: Any) -> Any:
    return 1


@pytest.mark.parametrize(
    ("function", "maps", "reason"),
    [
        pytest.param(other_columns, (), "has made DataFrames with different columns", id="other columns"),
        pytest.param(returns, (), "yield one for each split", id="returned"),
        pytest.param(both_kinds, (), "yielded DataFrames and JSON values", id="both kinds"),
        pytest.param(numbers, (number,), "returned a int for a DataFrame", id="chained value"),
    ],
)
def test_what_cannot_be_written_is_refused(
    slots: SlotBox, function: Callable[..., Any], maps: tuple[Callable[..., Any], ...], reason: str
) -> None:
    made = read(slots, function, *maps, outputs=(out(GATHER, 1),), given=[0, 1])
    assert made.failure is not None
    assert reason in made.failure.message
    assert made.failure.kind == "USER"


def test_a_data_frame_without_a_consumer_is_refused(slots: SlotBox) -> None:
    made = read(slots, numbers, outputs=(), given=[0])
    assert made.failure is not None
    assert "has no consumer and yielded a DataFrame" in made.failure.message
    assert not made.failure.is_recoverable, "no attempt could"

"""Rows of dynamic edges: written before the number of consumers is known, read as ranges of subpartitions (R66).

A row belongs to one of `subpartitions` by its keys. A producer writes as few files as its rows need, each with a
contiguous range of subpartitions; a consumer whose share begins or ends within a file filters its rows. So small data
is one file, whatever parallelism would be possible, and large data is read without a look at the rows of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from runtime.common.exchange import InputShare
from runtime.gateways.task import ExchangeMode, InputGate, PartitionFile, ResultPartitionSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_BYTES_PER_FILE = 4 << 20
"""Of Spark's estimate, in which rows are not compressed."""
_FILES_MAX = 64
_FILES_UNKNOWN = 4
"""At least, where Spark has no estimate (rows from Python), or one that is none (the product of a join's sides)."""
_ESTIMATE_MAX = 1 << 40

Read = Callable[[Sequence[str]], "DataFrame"]
Keys = Callable[["DataFrame"], Sequence["Column"]]


def route(frame: DataFrame, spec: ResultPartitionSpec, keys: Sequence[Column]) -> tuple[DataFrame, int]:
    """The frame with one Spark partition for each file, and how many these are."""
    from pyspark.sql import functions

    count = min(_files(frame), spec.consumer_parallelism)
    if count == 1:
        return frame.coalesce(1), 1
    if spec.mode is ExchangeMode.REBALANCE:
        return frame.repartition(count), count
    number = _number(keys, spec.consumer_parallelism)
    return frame.repartitionById(count, functions.floor(number * count / spec.consumer_parallelism).cast("int")), count


def span_of(part: int, files: int, subpartitions: int) -> tuple[int, int]:
    """The first subpartition that file number `part` has rows of, and how many these are."""
    first = -(-part * subpartitions // files)
    return first, -(-(part + 1) * subpartitions // files) - first


def read_share(gate: InputGate, share: InputShare, read: Read, keys: Keys) -> DataFrame:
    """The rows of a share: whole files, what is its own of files that it has in part, and its part of all that."""
    files = [file for partition in gate.partitions for file in partition.files]
    whole = [file.path for file in files if share.first <= file.consumer and _end(file) <= share.end]
    frame = read(whole)
    cut: dict[tuple[int, int], list[str]] = {}
    for file in files:
        if not (share.first <= file.consumer and _end(file) <= share.end):
            cut.setdefault((file.consumer, max(file.span, 1)), []).append(file.path)
    for (first, span), paths in cut.items():
        frame = frame.union(_cut(read(paths), gate, share, keys, (first, span)))
    if share.parts > 1:
        frame = frame.where(_by_content(frame, share.parts) == share.part)
    return frame


def _cut(frame: DataFrame, gate: InputGate, share: InputShare, keys: Keys, place: tuple[int, int]) -> DataFrame:
    first, span = place
    if gate.mode is ExchangeMode.HASH:
        number = _number(keys(frame), gate.subpartitions)
    else:
        number = _by_content(frame, span) + first
    return frame.where((number >= share.first) & (number < share.end))


def _end(file: PartitionFile) -> int:
    return file.consumer + max(file.span, 1)


def _number(keys: Sequence[Column], subpartitions: int) -> Column:
    from pyspark.sql import functions

    return functions.pmod(functions.hash(*keys), functions.lit(subpartitions))


def _by_content(frame: DataFrame, parts: int) -> Column:
    """A number below `parts` that each reader finds for a row, by all columns that Spark can hash; 0 without any."""
    from pyspark.sql import functions

    quoted = [field.name.replace("`", "``") for field in frame.schema.fields if _can_be_hashed(field.dataType)]
    if not quoted:
        return functions.lit(0)
    content = functions.xxhash64(*(functions.col(f"`{name}`") for name in quoted))
    return functions.pmod(content, functions.lit(parts))


def _can_be_hashed(data_type: DataType) -> bool:
    text = data_type.simpleString()
    return "map<" not in text and "variant" not in text


def _files(frame: DataFrame) -> int:
    """How many files the rows need, by the estimate that Spark has of the plan before it runs."""
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - no public way
    estimate = int(plan.stats().sizeInBytes())
    if estimate > _ESTIMATE_MAX:
        return min(max(2 * frame.sparkSession.sparkContext.defaultParallelism, _FILES_UNKNOWN), _FILES_MAX)
    return min(max(-(-estimate // _BYTES_PER_FILE), 1), _FILES_MAX)

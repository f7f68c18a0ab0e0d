"""Rows of dynamic edges: written before the number of consumers is known, read as ranges of subpartitions (R66).

A row belongs to one of `subpartitions`: on a hash edge by its keys, on a rebalance edge by its place. Large data is
written into files with a contiguous range of subpartitions each, so that it is read without a look at the rows of
others. Small data is written as it comes, without a shuffle: each Spark partition is a file with rows of all
subpartitions. A consumer whose share begins or ends within a file filters its rows. What was expected to be small and
was not is written a second time, into ranges.

The number of each row is stored beside it, in a column of ours: what a reader could find anew is the number of a value
that a file may have changed (a timestamp of milliseconds), and a row whose number differs would be nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from runtime.common.exchange import InputShare
from runtime.gateways.task import ExchangeMode, InputGate, PartitionFile, ResultPartitionSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_UNDIVIDED_BYTES_MAX = 128 << 20
"""Of the estimate, and of files: what one subtask reads by default. To divide it costs more than to read it twice."""
_BYTES_PER_RANGE = 32 << 20
"""Of what is more than that: a quarter of what one subtask reads by default, so it reads little of files in part."""
_FILES_MAX = 64
_RANGES_UNKNOWN = 4
"""At least, where Spark has no estimate: rows from Python."""
_ESTIMATE_MAX = 1 << 40
_GOLDEN = 0.6180339887498949
_COLUMN = "_subpartition"

Read = Callable[[Sequence[str], "StructType"], "DataFrame"]


def column_of(schema: StructType) -> str:
    """The name of the column with the numbers: one that no column of the user has, in any case of letters."""
    taken = {name.lower() for name in schema.names}
    name = _COLUMN
    while name in taken:
        name += "_"
    return name


def route(frame: DataFrame, spec: ResultPartitionSpec, keys: Sequence[Column]) -> tuple[DataFrame, int]:
    """The frame with the numbers of its rows, and into how many ranges it is divided: by Spark partition, unless 1."""
    from pyspark.sql import functions

    column, subpartitions = column_of(frame.schema), spec.consumer_parallelism
    count = min(_ranges(frame), subpartitions)
    if spec.mode is ExchangeMode.HASH:
        numbered = frame.withColumn(column, functions.pmod(functions.hash(*keys), functions.lit(subpartitions)))
        if count == 1:
            return numbered.coalesce(_FILES_MAX), 1
        return divide(numbered, column, count, subpartitions), count
    if count == 1:
        # Multiples of the golden ratio: however few rows a Spark partition has, they are spread over all shares.
        spread = functions.pmod(functions.monotonically_increasing_id() * _GOLDEN, functions.lit(1.0))
        number = functions.floor(spread * subpartitions)
        return frame.coalesce(_FILES_MAX).withColumn(column, number.cast("int")), 1
    placed = frame.repartition(count)
    file = functions.spark_partition_id()
    first = functions.ceil(file * subpartitions / count)
    span = functions.ceil((file + 1) * subpartitions / count) - first
    number = first + functions.pmod(functions.monotonically_increasing_id(), span)
    return placed.withColumn(column, number.cast("int")), count


def divide(numbered: DataFrame, column: str, ranges: int, subpartitions: int) -> DataFrame:
    """One Spark partition for each range of the rows' own numbers."""
    from pyspark.sql import functions

    return numbered.repartitionById(ranges, functions.floor(functions.col(column) * ranges / subpartitions).cast("int"))


def ranges_after_all(ranges: int, size_bytes: int, subpartitions: int) -> int:
    """Into how many ranges rows are to be divided that have been written with `size_bytes`; `ranges` to leave them."""
    if ranges > 1 or size_bytes <= _UNDIVIDED_BYTES_MAX:
        return ranges
    return min(-(-size_bytes // _BYTES_PER_RANGE), _FILES_MAX, subpartitions)


def numbered_schema(schema: StructType) -> StructType:
    """Of the files: what the user's rows have, and the number."""
    from pyspark.sql.types import IntegerType, StructType

    return StructType([*schema.fields]).add(column_of(schema), IntegerType())


def span_of(part: int, ranges: int, subpartitions: int) -> tuple[int, int]:
    """The first subpartition that a file of Spark partition `part` has rows of, and how many these are."""
    if ranges == 1:
        return 0, subpartitions
    first = -(-part * subpartitions // ranges)
    return first, -(-(part + 1) * subpartitions // ranges) - first


def read_share(gate: InputGate, share: InputShare, schema: StructType, read: Read) -> DataFrame:
    """The rows of a share: whole files, what is its own of files that it has in part, and its part of all that."""
    from pyspark.sql import functions

    files = [file for partition in gate.partitions for file in partition.files]
    frame = read([file.path for file in files if _is_whole(file, share)], schema)
    if cut := [file.path for file in files if not _is_whole(file, share)]:
        number = functions.col(column := column_of(schema))
        numbered = read(cut, numbered_schema(schema)).where((number >= share.first) & (number < share.end))
        frame = frame.union(numbered.drop(column))
    if share.parts > 1:
        frame = frame.where(_by_content(frame, share.parts) == share.part)
    return frame


def _is_whole(file: PartitionFile, share: InputShare) -> bool:
    return share.first <= file.consumer and file.consumer + max(file.span, 1) <= share.end


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


def _ranges(frame: DataFrame) -> int:
    """How many ranges the rows need, by the estimate that Spark has of the plan before it runs.

    Spark takes the product of both sides for the size of a join; here what all leaves have is the most that counts.
    """
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - no public way
    estimate = int(plan.stats().sizeInBytes())
    if estimate > _UNDIVIDED_BYTES_MAX:
        leaves = plan.collectLeaves()
        read = sum(int(leaves.apply(index).stats().sizeInBytes()) for index in range(leaves.size()))
        estimate = min(estimate, read)
    if estimate > _ESTIMATE_MAX:
        return min(max(2 * frame.sparkSession.sparkContext.defaultParallelism, _RANGES_UNKNOWN), _FILES_MAX)
    return 1 if estimate <= _UNDIVIDED_BYTES_MAX else min(-(-estimate // _BYTES_PER_RANGE), _FILES_MAX)

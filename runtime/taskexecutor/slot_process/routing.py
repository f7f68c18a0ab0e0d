"""Which consumer gets which row, as Spark expressions.

Hash keys are made canonical first (integers to bigint, floating point to double, -0.0 to 0.0): Spark's hash differs by
width, so the sides of a join would miss each other. What cannot be made equal that way is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runtime.gateways.task import ExchangeMode, InputGate, ResultPartitionSpec
from runtime.taskexecutor.slot_process.causes import TaskError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_FLOATS = frozenset({"float", "double"})
_NAMES_SHOWN_MAX = 50


def route(frame: DataFrame, spec: ResultPartitionSpec) -> tuple[DataFrame, bool]:
    """The frame with one Spark partition per consumer, and True; or as it is, and False, where all rows go one way."""
    consumers = spec.consumer_parallelism
    if consumers == 1:
        return frame, False
    if spec.mode is ExchangeMode.HASH:
        return _hash(frame, spec.key_columns, consumers), True
    if spec.mode is ExchangeMode.REBALANCE:
        return frame.repartition(consumers), True
    return frame, False


def _hash(frame: DataFrame, keys: Sequence[str], consumers: int) -> DataFrame:
    from pyspark.sql import functions

    consumer = functions.pmod(functions.hash(*canonical_keys(frame, keys)), functions.lit(consumers))
    return frame.repartitionById(consumers, consumer)


def canonical_keys(frame: DataFrame, keys: Sequence[str]) -> list[Column]:
    """What a row is hashed by."""
    return [_canonical(_field(frame.schema, key)) for key in keys]


def _canonical(field: StructField) -> Column:
    from pyspark.sql import functions

    quoted = field.name.replace("`", "``")
    column = functions.col(f"`{quoted}`")
    match canonical_type(field.dataType):
        case "bigint":
            return column.cast("bigint")
        case "double":
            return column.cast("double") + functions.lit(0.0)
        case _:
            return column


def canonical_type(data_type: DataType) -> str:
    """Name of the type that a key of this type is hashed as."""
    name = str(data_type.simpleString())
    if name in _INTEGERS:
        return "bigint"
    return "double" if name in _FLOATS else name


def _field(schema: StructType, key: str) -> StructField:
    """A column by name; as in Spark, case counts only when two columns differ by it."""
    exact = [field for field in schema.fields if field.name == key]
    found = exact or [field for field in schema.fields if field.name.lower() == key.lower()]
    if len(found) != 1:
        message = f"{key!r} is {'not a column' if not found else 'ambiguous'}"
        raise TaskError(message)
    return found[0]


def check_keys_exist(name: str, spec: ResultPartitionSpec, schema: StructType) -> None:
    """Raises TaskError that names the missing key and the columns there are."""
    for key in spec.key_columns if spec.mode is ExchangeMode.HASH else ():
        try:
            _field(schema, key)
        except TaskError as error:
            columns = ", ".join(schema.names[:_NAMES_SHOWN_MAX])
            message = f"{name!r} is to be hashed by {key!r}, but in its DataFrame {error}: it has {columns}"
            raise TaskError(message) from None


def check_key_types(gates: Sequence[tuple[InputGate, StructType]]) -> None:
    """The hash edges of one consumer must agree on the types of their keys, or equal keys do not meet."""
    keys = [[_field(schema, key) for key in gate.key_columns] for gate, schema in gates]
    for (gate, _), own in zip(gates[1:], keys[1:], strict=True):
        first_gate = gates[0][0]
        if len(own) != len(keys[0]):
            message = (
                f"{first_gate.source_name!r} is hashed by {len(keys[0])} columns, {gate.source_name!r} by {len(own)}: "
                "the hash edges of one consumer need the same number of keys"
            )
            raise TaskError(message)
        for mine, others in zip(own, keys[0], strict=True):
            if canonical_type(mine.dataType) != canonical_type(others.dataType):
                message = (
                    f"hash keys of different types meet: {first_gate.source_name!r}.{others.name} is "
                    f"{others.dataType.simpleString()}, {gate.source_name!r}.{mine.name} is "
                    f"{mine.dataType.simpleString()}; equal keys would reach different subtasks, so cast one of them"
                )
                raise TaskError(message)


def common_schema(source_name: str, schemas: Sequence[str]) -> StructType:
    """The schema of all producers of an edge, or of what one has yielded; "" = that of the first. Raises TaskError when
    names or types differ.
    """
    from pyspark.sql.types import StructType

    different = list(dict.fromkeys(filter(None, schemas)))
    parsed = [StructType.fromJson(json.loads(schema)) for schema in different]
    first = parsed[0]
    for other in parsed[1:]:
        if _shape(other) != _shape(first):
            message = (
                f"{source_name!r} has made DataFrames with different columns: "
                f"{first.simpleString()} and {other.simpleString()}"
            )
            raise TaskError(message)
    return first


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows, made in the JVM: `createDataFrame([], ...)` would start Python workers for it. Connect's does not."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return spark.createDataFrame([], schema)
    from pyspark.sql.classic.dataframe import DataFrame

    java: Any = spark._jsparkSession  # noqa: SLF001 - pyspark has no public way that stays in the JVM
    rows = spark.sparkContext._jvm.java.util.ArrayList()  # type: ignore[union-attr]  # noqa: SLF001 - as above
    return DataFrame(java.createDataFrame(rows, java.parseDataType(schema.json())), spark)


def _shape(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, str(field.dataType.simpleString())) for field in schema.fields]

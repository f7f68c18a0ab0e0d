"""SqlStatements: SQL as a function of a job. It runs on a slot, where there is no Airflow."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from runtime.common.errors import NonRecoverableError


class RowsTooLargeError(NonRecoverableError):
    """The rows take more bytes than the XCom may have."""


@dataclass(frozen=True, slots=True)
class SqlStatements:
    """Statements that one session runs in their order. Its call returns rows as lists, or the written table.

    `args` are the values of named parameters, or of markers of a single statement. `write_to` gets the rows of the last
    statement. `row_bytes_max` bounds the rows, as JSON; None: unbounded; 0: no rows are fetched, and the value is None.
    """

    statements: Sequence[str]
    args: Mapping[str, Any] | Sequence[Any] | None = None
    write_to: str = ""
    mode: str = "error"
    return_last: bool = True
    row_bytes_max: int | None = None

    def __call__(self, spark: Any) -> Any:
        """Run them. Raises RowsTooLargeError, and the errors of Spark."""
        results: list[Any] = []
        left = self.row_bytes_max
        for number, statement in enumerate(self.statements, start=1):
            frame = spark.sql(statement, args=self.args) if self.args else spark.sql(statement)
            is_last = number == len(self.statements)
            if is_last and self.write_to:
                frame.write.mode(self.mode).saveAsTable(self.write_to)
                return self.write_to
            if is_last or not self.return_last:
                rows, left = self._rows(frame, left)
                results.append(rows)
        if self.row_bytes_max == 0:
            return None
        return results[-1] if self.return_last else results

    def _rows(self, frame: Any, left: int | None) -> tuple[list[Any], int | None]:
        if self.row_bytes_max == 0:
            frame.write.format("noop").mode("overwrite").save()
            return [], left
        rows = []
        for row in frame.collect() if left is None else frame.toLocalIterator():
            rows.append([json_value(value) for value in row])
            if left is not None:
                left -= len(json.dumps(rows[-1])) + 2
                if left < 0:
                    message = (
                        f"the rows take more than xcom_limit, {self.row_bytes_max} bytes: take fewer (LIMIT), "
                        "write them with write_to=, raise xcom_limit, or set do_xcom_push=False"
                    )
                    raise RowsTooLargeError(message)
        return rows, left


def json_value(value: Any) -> Any:
    """A value of a row as JSON has it: dates and decimals as texts, binaries as hexadecimal ones."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, Mapping):
        return {str(key): json_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(one) for one in value]
    return value if isinstance(value, str | int | None) else _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)

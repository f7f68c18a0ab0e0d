"""Streaming queries whose rows can be counted: what they read is numbered, and each has a sink that keeps it once.

`landing` gets files of numbered lines. Of the three queries one writes them into a table of Spark's file sink, one into
a directory for each batch, which is replaced when the batch is repeated, and one counts them in its state.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_flinklike import Pipeline

REMAINDERS = 7
_TRIGGER = "500 milliseconds"


def numbers(ctx: Any) -> Any:
    """The numbered lines, some files in a batch."""
    return ctx.spark.readStream.schema("n long").option("maxFilesPerTrigger", 50).json(f"{ctx.params['base']}/landing")


def table(ctx: Any, frame: Any) -> Any:
    """Spark's own file sink."""
    return frame.writeStream.format("parquet").option("path", f"{ctx.params['base']}/table")


def batches(ctx: Any, batch: Any, batch_id: int) -> None:
    """Idempotent by number: a repeated batch takes the place of what was written of it."""
    Path(ctx.params["base"], "pid").write_text(str(os.getpid()))
    batch.write.mode("overwrite").parquet(f"{ctx.params['base']}/batches/batch={batch_id}")


def remainders(_ctx: Any, frame: Any) -> Any:
    """Counts that are state."""
    return frame.groupBy((frame.n % REMAINDERS).alias("remainder")).count()


def counts(ctx: Any, batch: Any, batch_id: int) -> None:
    """The counts that have changed in a batch, idempotent by its number."""
    batch.write.mode("overwrite").parquet(f"{ctx.params['base']}/counts/batch={batch_id}")


def counting(base: Path) -> Pipeline:
    """The three queries over `base`."""
    pipeline = Pipeline(
        "counted",
        params={"base": str(base)},
        spark_conf={"spark.sql.shuffle.partitions": "2"},
        configuration={
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.tolerable-failed-checkpoints": "1000",
            "execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
        },
    )
    read = pipeline.stream_source("numbers", f"{__name__}:numbers")
    read.stream_sink("table", f"{__name__}:table", trigger=_TRIGGER, foreach_batch=False)
    read.stream_sink("batches", f"{__name__}:batches", trigger=_TRIGGER, foreach_batch=True)
    totals = read.map("remainders", f"{__name__}:remainders")
    totals.stream_sink("counts", f"{__name__}:counts", trigger=_TRIGGER, foreach_batch=True, output_mode="update")
    return pipeline


def judge(spark: Any, base: str) -> dict[str, int]:
    """What is missing, or there more than once, by a batch query over what came in: all 0, but `rows`."""
    spark.conf.set("spark.sql.files.openCostInBytes", "1024")  # the files are small, and a task for each costs more
    read = _numbers(spark.read.schema("n long").json(f"{base}/landing"))
    found = {"rows": read.total()}
    for name in ("table", "batches"):
        out = _numbers(spark.read.schema("n long").parquet(f"{base}/{name}"))
        found[f"missing in {name}"] = (read - out).total()
        found[f"too much in {name}"] = (out - read).total()
    counted = spark.read.parquet(f"{base}/counts").groupBy("remainder").max("count").collect()
    right = Counter(dict.fromkeys(range(REMAINDERS), 0))
    right.update(number % REMAINDERS for number in read.elements())
    found["wrong in counts"] = (Counter(dict(map(tuple, counted))) - right).total()
    found["missing in counts"] = (right - Counter(dict(map(tuple, counted)))).total()
    return found


def _numbers(frame: Any) -> Counter[int]:
    return Counter(row.n for row in frame.select("n").collect())


def written(base: Path) -> dict[str, int]:
    """How many rows there are by now, by sink, without Spark: repeated batches of the table may count twice."""
    from pyarrow.parquet import read_table

    table = sum(map(_rows, (base / "table").glob("part-*.parquet")))
    batches = sum(map(_rows, _parts(base / "batches")))
    latest: dict[int, int] = {}
    for part in _parts(base / "counts"):
        with suppress(OSError, ValueError):  # as below
            for row in read_table(part).to_pylist():
                latest[row["remainder"]] = max(row["count"], latest.get(row["remainder"], 0))
    return {"table": table, "batches": batches, "counts": sum(latest.values())}


def _parts(base: Path) -> list[Path]:
    """Of all batches; one that is being replaced may be gone while it is listed."""
    found: list[Path] = []
    for batch in base.glob("batch=*"):
        with suppress(FileNotFoundError):
            found += batch.glob("part-*.parquet")
    return found


def _rows(part: Path) -> int:
    from pyarrow.parquet import read_metadata

    with suppress(OSError, ValueError):  # it is being written or replaced, or was not finished
        return int(read_metadata(part).num_rows)
    return 0


class Numbers:
    """Writes numbered lines in `with`, a file every half second, each of which appears whole."""

    def __init__(self, landing: Path) -> None:
        self._landing = landing
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.written = 0

    def _write(self) -> None:
        number = 0
        while not self._is_over.wait(0.5):
            lines = [json.dumps({"n": self.written + one}) + "\n" for one in range(20)]
            part = self._landing / f".{number}.part"
            part.write_text("".join(lines))
            part.rename(self._landing / f"{number:06}.json")
            self.written += len(lines)
            number += 1

    def __enter__(self) -> Self:
        self._landing.mkdir(parents=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

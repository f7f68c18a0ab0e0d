"""Functions of streaming queries that benchmarks run. A batch writes down when it was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def rates(ctx: Any) -> Any:
    """Always something new."""
    return ctx.spark.readStream.format("rate").option("rowsPerSecond", ctx.params.get("rows", 100)).load()


def nothing(ctx: Any) -> Any:
    """A folder into which nothing comes."""
    return ctx.spark.readStream.schema("id long").json(ctx.params["empty"])


def stamp(ctx: Any, batch: Any, batch_id: int) -> None:
    """A line for each batch; it raises once if that is wanted, in place of the batch behind that."""
    count = batch.count()
    wish = Path(ctx.params["stamps"] + ".raise")
    if wish.exists():
        wish.unlink()
        message = f"batch {batch_id} is to fail"
        raise RuntimeError(message)
    with Path(ctx.params["stamps"]).open("a") as out:
        out.write(f"{time.time()} {batch_id} {count}\n")


def drop(ctx: Any, batch: Any, batch_id: int) -> None:
    """Nothing."""
    del ctx, batch, batch_id


def counts(ctx: Any, rates: Any) -> Any:
    """State that grows with each batch."""
    del ctx
    return rates.groupBy((rates.value % 1000).alias("key")).count()

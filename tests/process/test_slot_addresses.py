"""The limit of addresses is a net for what is asked for at once: it holds up no library that reserves more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.spark.slot_work import slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio]


async def test_libraries_find_the_addresses_that_they_reserve(tmp_path: Path) -> None:
    """Arrow reserves 1 GiB, and the C library for each thread: a read of Arrow's waited for its threads for ever."""

    def read(ctx: Any) -> int:
        import threading

        import pyarrow as pa
        from pyarrow import parquet

        over = threading.Event()

        def hold() -> None:
            held = bytearray(100_000)
            over.wait()
            held.clear()

        threads = [threading.Thread(target=hold) for _ in range(8)]
        for thread in threads:
            thread.start()
        for number in range(2):
            parquet.write_table(pa.table({"n": range(100)}), f"{ctx.params['path']}/{number}.parquet")
        rows: int = sum(parquet.read_table(ctx.params["path"]).num_rows for _ in range(5))
        over.set()
        return rows

    (tmp_path / "table").mkdir()
    async with slot_bench(tmp_path, memory_bytes_max=200 * 1024 * 1024) as limited:
        work = limited.work(read, params={"path": str(tmp_path / "table")})
        assert await limited.value(work) == 1000

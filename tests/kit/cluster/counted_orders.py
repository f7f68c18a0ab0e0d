"""The orders of dags/stream_orders.py, written as they come, and the judge of what its job has made of them."""

from __future__ import annotations

import json
import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SCHEMA = "id long, at timestamp, shop string, cents long"
_SHOPS = ("north", "south", "west")
_BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
_IN_FILE = 20
_PAUSE = 2.0
"""The job reads four files in a batch, and a batch takes a second or more on a busy machine."""


class Orders:
    """Writes orders in `with`, a file every two seconds, and at the end one whose time closes all windows."""

    def __init__(self, base: Path) -> None:
        self._landing = base / "landing"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._files = 0
        self.written = 0

    def _write(self) -> None:
        while not self._is_over.wait(_PAUSE):
            self._put([_order(self.written + one) for one in range(_IN_FILE)])

    def _put(self, orders: list[dict[str, Any]]) -> None:
        hidden = self._landing / f".{self._files:06}.json"
        hidden.write_text("".join(json.dumps(order) + "\n" for order in orders))
        hidden.rename(self._landing / f"{self._files:06}.json")
        self._files += 1
        self.written += len(orders)

    def __enter__(self) -> Self:
        self._landing.mkdir(parents=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._put([{**_order(0), "id": -1, "at": _text(_BEGIN + timedelta(days=30))}])


def _order(number: int) -> dict[str, Any]:
    at = _text(_BEGIN + timedelta(seconds=2 * number))
    return {"id": number, "at": at, "shop": _SHOPS[number % len(_SHOPS)], "cents": number * 37 % 1000}


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def kept(base: Path) -> int:
    """Orders in the ledger by now."""
    if not (base / "orders.db").exists():
        return 0
    with sqlite3.connect(base / "orders.db", timeout=60) as database:
        tables = database.execute("select count(*) from sqlite_master where name = 'orders'").fetchone()[0]
        return int(database.execute("select count(*) from orders").fetchone()[0]) if tables else 0


def judge(spark: Any, base: str) -> dict[str, int]:
    """What a batch query over all that came has, and the stream has not, or the other way: all 0, but `orders`."""
    from collections import Counter

    from pyspark.sql import functions as f

    came = spark.read.schema(SCHEMA).json(f"{base}/landing")
    minutes = came.where("id >= 0").groupBy(f.window("at", "1 minute"), "shop")
    counted = minutes.agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
    wanted = Counter(map(tuple, counted.selectExpr("window.start as minute", "shop", "orders", "cents").collect()))
    found = Counter(map(tuple, spark.read.parquet(f"{base}/table").collect()))
    with sqlite3.connect(f"{base}/orders.db") as database:
        ledger = Counter(database.execute("select id, shop, cents from orders"))
    orders = Counter(map(tuple, came.select("id", "shop", "cents").collect()))
    return {
        "orders": orders.total(),
        "windows": wanted.total(),
        "missing windows": (wanted - found).total(),
        "windows too much": (found - wanted).total(),
        "missing orders": (orders - ledger).total(),
        "orders too much": (ledger - orders).total(),
    }

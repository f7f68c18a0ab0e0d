"""A streaming job of chaos: what comes in, its two queries, and whether each row is where it has to be, once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.ledger import StreamLine, now
from tests.kit.checkpoint.query_directories import table_files

ROWS_IN_FILE = 10
SINKS = ("table", "batches")


@dataclass(frozen=True, slots=True)
class Rows:
    """Below `base`: `landing` has so many files, each of which is one batch; each query writes into a folder."""

    base: Path
    files: int

    def prepare(self) -> None:
        """All that comes in."""
        landing = self.base / "landing"
        landing.mkdir(parents=True)
        for number in range(self.files):
            first = number * ROWS_IN_FILE
            lines = [json.dumps({"n": first + one}) + "\n" for one in range(ROWS_IN_FILE)]
            (landing / f"{number:04}.json").write_text("".join(lines))

    def look(self, job: str) -> Iterator[StreamLine]:
        """What readers of each sink see: of the table, the files that Spark's log of the sink names."""
        wanted = Counter(range(self.files * ROWS_IN_FILE))
        for sink in SINKS:
            found = rows_of(self.base, sink)
            missing, more = (wanted - found).total(), (found - wanted).total()
            yield StreamLine(now(), job, sink, found.total(), missing, more)


def rows_of(base: Path, sink: str) -> Counter[int]:
    """What readers of a sink see."""
    from pyarrow.parquet import ParquetFile  # tasks import this module, too

    is_table = sink == "table"
    parts = table_files(base / "table") if is_table else base.glob("batches/batch=*/part-*.parquet")
    found = Counter[int]()
    for part in parts:
        found.update(ParquetFile(part).read(columns=["n"])["n"].to_pylist())
    return found

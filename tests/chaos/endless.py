"""Endless streaming jobs of chaos: rows come while they run, until their client stops or drains them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_flinklike.client import AsyncFlinklikeClient, new_job_id
from airflow_flinklike.client.savepoints import stop_with_savepoint
from airflow_flinklike.exceptions import JobConflictError, SavepointFailedError
from runtime.common.ids import JobId
from tests.chaos.ledger import Ledger, RunLine, StreamLine, now
from tests.chaos.streams import ROWS_IN_FILE, SINKS, rows_of

_STOP_AGAIN = 1.0
_LOOK_EVERY = 3
"""Files between two looks at the runs of the queries."""


@dataclass
class Feed:
    """What comes in for one or two jobs, the second of which is started from the savepoint of the first.

    `files` come one every `every` seconds. Each has rows of its own, and those of the file before once more. `written`:
    so many are there. `savepoint`: of the first job.
    """

    base: Path
    files: int
    every: float
    written: int = 0
    savepoint: str = ""

    def prepare(self) -> None:
        """The folder of what comes in."""
        (self.base / "landing").mkdir(parents=True, exist_ok=True)

    def bring(self) -> None:
        """One more file, whole or not at all."""
        number = self.written
        first = max(0, number - 1) * ROWS_IN_FILE
        text = "".join(json.dumps({"n": one}) + "\n" for one in range(first, (number + 1) * ROWS_IN_FILE))
        part = self.base / "landing" / f".{number:04}.part"
        part.write_text(text)
        part.rename(part.with_name(f"{number:04}.json"))
        self.written += 1

    def wanted(self, sink: str) -> Counter[int]:
        """The rows that a sink has to have: the table each once, the batches each as often as it came in."""
        each = Counter(range(self.written * ROWS_IN_FILE))
        again = Counter(range(max(0, self.written - 1) * ROWS_IN_FILE))
        return each if sink == "table" else each + again

    def look(self, job: str, *, is_drained: bool) -> Iterator[StreamLine]:
        """What readers of each sink see. What was stopped without a drain has not read all, and nothing twice."""
        for sink in SINKS:
            found, wanted = rows_of(self.base, sink), self.wanted(sink)
            missing = (wanted - found).total() if is_drained else 0
            yield StreamLine(now(), job, sink, found.total(), missing, (found - wanted).total())


@dataclass(frozen=True)
class Endless:
    """One job: it gets files up to number `until`, then it is stopped. `is_first`: another one goes on from there."""

    feed: Feed
    until: int
    is_first: bool

    async def drive(self, client: AsyncFlinklikeClient, job_id: JobId, ledger: Ledger) -> None:
        """Bring what comes in, then stop the job. Called once more it goes on. Raises FlinklikeClientError."""
        feed = self.feed
        while feed.written < self.until:
            await asyncio.to_thread(feed.bring)
            if feed.written % _LOOK_EVERY == 0:
                for line in _runs(job_id, await client.get(f"/jobs/{job_id}/streams")):
                    ledger.add(line)
            await asyncio.sleep(feed.every)
        ledger.add(RunLine(now(), "stopping", job_id))
        while not await self._is_stopped(client, job_id):
            await asyncio.sleep(_STOP_AGAIN)

    async def _is_stopped(self, client: AsyncFlinklikeClient, job_id: JobId) -> bool:
        target = str(self.feed.base / "savepoints")
        try:
            stop = stop_with_savepoint(job_id, str(new_job_id()), target=target, drain=not self.is_first)
            self.feed.savepoint = await client.run(stop)
        except SavepointFailedError:
            return False
        except JobConflictError:
            return (await client.status(job_id)).status.is_globally_terminal
        return True


def _runs(job_id: str, streams: dict[str, Any]) -> Iterator[RunLine]:
    for vertex in streams["vertices"]:
        for subtask in vertex["subtasks"]:
            for query in subtask["queries"]:
                yield RunLine(
                    now(), "runs", job_id, vertex["uid"], subtask["subtask"], subtask["attempt"], query["run-id"]
                )

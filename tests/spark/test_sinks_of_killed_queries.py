"""How often each row is in a sink whose query was killed at random moments: the table of docs/streaming.md, counted.

Each query reads numbered rows, a file in a batch. Its process is killed in the middle of batches and between them, and
begun again until all is read; then what lies in the sink is counted.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.gateways.task import FailureInfo
from runtime.jobgraph.streams import StreamTrigger, TriggerKind
from tests.kit.host.levels import reached
from tests.kit.spark.slot_box import SlotBox
from tests.kit.spark.slot_work import query
from tests.kit.spark.spark_box import SparkBox

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NOW = StreamTrigger(kind=TriggerKind.AVAILABLE_NOW)
OFTEN = StreamTrigger(kind=TriggerKind.PROCESSING_TIME, interval="100 milliseconds")
FILES, ROWS, KILLS = 12, 10, 2
ALL = Counter(range(FILES * ROWS))
_jobs = iter(range(1, 10_000))


@pytest.fixture(scope="module")
def slots(shared_box: SparkBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlotBox]:
    if not shared_box.environment.is_ready:
        shared_box.run(shared_box.environment.restart())
    box = SlotBox(shared_box, tmp_path_factory.mktemp("slots"))
    yield box
    box.stop()


def numbers(ctx: Any) -> Any:
    source = ctx.spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
    return source.json(f"{ctx.params['base']}/in")


def to_table(ctx: Any, df: Any) -> Any:
    return df.writeStream.format("parquet").option("path", f"{ctx.params['base']}/table")


def to_console(ctx: Any, df: Any) -> Any:
    return df.writeStream.format("console")


def to_memory(ctx: Any, df: Any) -> Any:
    return df.writeStream.format("memory")


def replaced_by_number(ctx: Any, batch: Any, batch_id: int) -> None:
    batch.write.mode("overwrite").parquet(f"{ctx.params['base']}/batches/batch={batch_id}")


def with_side_effects(ctx: Any, batch: Any, batch_id: int) -> None:
    with Path(ctx.params["base"], "effects").open("a") as out:
        for row in batch.collect():
            out.write(f"{batch_id} {row.n}\n")
            out.flush()
            time.sleep(0.01)


def for_each_row(ctx: Any, df: Any) -> Any:
    effects = Path(ctx.params["base"], "effects")

    def keep(row: Any) -> None:
        with effects.open("a") as out:
            out.write(f"{row.n}\n")
        time.sleep(0.01)

    return df.writeStream.foreach(keep)


def to_derby(ctx: Any, batch: Any, batch_id: int) -> None:
    frame = batch.selectExpr("n", f"{batch_id} as batch")
    frame.write.mode("append").jdbc(ctx.params["url"], "numbers", properties={"driver": DERBY})


DERBY = "org.apache.derby.jdbc.EmbeddedDriver"


def of_table(ctx: Any) -> Any:
    return [row.n for row in ctx.spark.read.parquet(f"{ctx.params['base']}/table").collect()]


def of_batches(ctx: Any) -> Any:
    return [row.n for row in ctx.spark.read.parquet(f"{ctx.params['base']}/batches").collect()]


def of_derby(ctx: Any) -> Any:
    found = ctx.spark.read.jdbc(ctx.params["url"], "numbers", properties={"driver": DERBY})
    return [[row.batch, row.n] for row in found.toDF("n", "batch").collect()]


class Killed:
    """One query over all rows, whose process is killed at random moments."""

    def __init__(self, slots: SlotBox, base: Path, write: Any, *, is_batch_function: bool) -> None:
        self._slots, self._write, self._is_batch_function = slots, write, is_batch_function
        self._job = JobId(f"{next(_jobs):032x}")
        self._random = random.Random(str(write))
        self.params = {"base": str(base), "url": f"jdbc:derby:{base}/derby;create=true"}
        (base / "in").mkdir()
        for number in range(FILES):
            lines = [json.dumps({"n": number * ROWS + one}) + "\n" for one in range(ROWS)]
            (base / "in" / f"{number:03}.json").write_text("".join(lines))

    @property
    def committed(self) -> int:
        """How many batches."""
        commits = self._slots.directory / "checkpoints" / self._job / "sink" / "0" / "commits"
        return sum(1 for one in commits.glob("[0-9]*")) if commits.exists() else 0

    def kill(self) -> None:
        """Run it until it has committed a few more, and kill it a random moment later."""
        wanted = self.committed + self._random.randint(1, 3)
        listener, running = self._slots.begin(self._work(OFTEN))
        reached(lambda: self.committed >= wanted, f"batch {wanted} is committed", timeout=200, every=0.02)
        attempt = self._slots.pool._slots[0].attempt
        assert attempt is not None
        assert attempt.process is not None
        time.sleep(self._random.uniform(0.0, 0.4))
        os.kill(attempt.process.pid, signal.SIGKILL)
        self._slots.end(running)
        assert listener.terminal.state is ExecutionState.FAILED

    def run(self, kills: int = KILLS) -> None:
        """To its end, and killed meanwhile."""
        for _ in range(kills):
            self.kill()
        listener, running = self._slots.begin(self._work(NOW))
        self._slots.end(running)
        report = listener.terminal
        assert report.state is ExecutionState.FINISHED, report.failure
        # A source that was killed behind its own log and before the batch was noted reads two files in the next one.
        assert FILES - KILLS <= self.committed <= FILES

    def failure(self) -> FailureInfo:
        """Why it does not run any more."""
        listener, running = self._slots.begin(self._work(OFTEN))
        self._slots.end(running)
        assert listener.terminal.failure is not None, listener.terminal
        return listener.terminal.failure

    def read(self, function: Any) -> Any:
        """By a batch job."""
        return self._slots.value(self._slots.work(function, params=self.params))

    def _work(self, trigger: StreamTrigger) -> Any:
        parts = query(numbers, self._write, trigger=trigger, is_batch_function=self._is_batch_function)
        return self._slots.work(*parts, job_id=self._job, params=self.params)


def test_a_file_sink_has_each_row_once(slots: SlotBox, tmp_path: Path) -> None:
    killed = Killed(slots, tmp_path, to_table, is_batch_function=False)
    killed.run()
    assert Counter(killed.read(of_table)) == ALL


def test_batches_that_are_replaced_by_number_have_each_row_once(slots: SlotBox, tmp_path: Path) -> None:
    killed = Killed(slots, tmp_path, replaced_by_number, is_batch_function=True)
    killed.run()
    assert Counter(killed.read(of_batches)) == ALL


def assert_at_least_once(pairs: list[tuple[int, int]]) -> None:
    """None is lost; what is there again is there in the batch of the same number."""
    assert Counter(n for _, n in set(pairs)) == ALL
    assert len(pairs) >= len(set(pairs))


def test_side_effects_of_a_batch_happen_at_least_once(slots: SlotBox, tmp_path: Path) -> None:
    killed = Killed(slots, tmp_path, with_side_effects, is_batch_function=True)
    killed.run()
    pairs = [(int(batch), int(n)) for batch, n in map(str.split, (tmp_path / "effects").read_text().splitlines())]
    assert_at_least_once(pairs)


def test_what_is_done_for_each_row_happens_at_least_once(slots: SlotBox, tmp_path: Path) -> None:
    Killed(slots, tmp_path, for_each_row, is_batch_function=False).run()
    found = Counter(map(int, (tmp_path / "effects").read_text().split()))
    assert found.keys() == ALL.keys()


def test_a_table_that_batches_are_appended_to_has_each_row_at_least_once(slots: SlotBox, tmp_path: Path) -> None:
    killed = Killed(slots, tmp_path, to_derby, is_batch_function=True)
    killed.run()
    assert_at_least_once([(batch, n) for batch, n in killed.read(of_derby)])


def test_a_query_that_writes_to_the_console_goes_on(slots: SlotBox, tmp_path: Path) -> None:
    Killed(slots, tmp_path, to_console, is_batch_function=False).run(kills=1)


def test_a_query_that_writes_into_memory_is_not_begun_again(slots: SlotBox, tmp_path: Path) -> None:
    killed = Killed(slots, tmp_path, to_memory, is_batch_function=False)
    killed.kill()
    assert "does not support recovering from checkpoint location" in killed.failure().message

"""What the tasks of chaos do: they write down what they do. Referred to by name, so slots import only this."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from tests.chaos.ledger import InputLine, Ledger, TaskLine, now
from tests.chaos.outputs import write

_ALIVE_EVERY = 0.2
_QUIET_EVERY = 1.0
_GONE = re.compile("FILE_NOT_EXIST|FileNotFoundException")
"""What Spark says when a file that it had listed is replaced before it is read."""


class Notes:
    """One attempt's lines in the ledger."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx
        self.plan: dict[str, Any] = dict(ctx.params["steps"][ctx.operator_name])
        self._ledger = Ledger(ctx.params["ledger"])
        # A slot's output goes to log/attempts/<TaskManager id>/<attempt id>/stdout.
        *_, self._task_manager, self.attempt, _ = Path("/proc/self/fd/1").readlink().parts

    def add(self, step: str) -> None:
        """One line."""
        ctx, plan = self._ctx, self.plan
        self._ledger.add(
            TaskLine(
                now(),
                step,
                ctx.job_id,
                ctx.operator_name,
                ctx.subtask_index,
                self.attempt,
                ctx.attempt_number,
                self._task_manager,
                os.getpid(),
                bool(plan["exclusive"]),
                bool(plan.get("spark")),
            )
        )

    def add_count(self, step: str, path: str, rows: int = -1) -> None:
        """One line about input files."""
        self._ledger.add(InputLine(now(), step, path, self._ctx.job_id, rows, self.attempt))

    def live(self) -> bool:
        """Spend the time that is planned; False when the task is cancelled meanwhile."""
        until = time.monotonic() + float(self.plan.get("seconds", 0))
        is_quiet = bool(self.plan.get("quiet"))
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(_QUIET_EVERY if is_quiet else _ALIVE_EVERY, left))
            if self._ctx.cancelled:
                self.add("cancelled")
                return False
            if not is_quiet:
                self.add("alive")
        return True

    def close(self) -> None:
        """Close the file."""
        self._ledger.close()


def step(ctx: Any, *inputs: Any) -> Any:
    """Sleep, fail as often as planned, and return this subtask's number plus the sum of all inputs."""
    notes = Notes(ctx)
    try:
        notes.add("begin")
        if notes.plan.get("daemon"):
            _leave_daemon(notes)
        if not notes.live():
            return None
        if ctx.attempt_number < int(notes.plan.get("failures", 0)):
            notes.add("fail")
            message = f"{ctx.operator_name} fails on purpose in attempt {ctx.attempt_number}"
            raise RuntimeError(message)
        if "output" in notes.plan:
            write(ctx, str(notes.plan["output"]), int(notes.plan["files"]), notes.attempt)
        notes.add("end")
        return ctx.subtask_index + 1 + sum(sum(values) for values in inputs)
    finally:
        notes.close()


def _leave_daemon(notes: Notes) -> None:
    """A process of its own session, two forks away, that shows its attempt's life until somebody ends it (R29, R30)."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        while True:
            notes.add("alive")
            time.sleep(_ALIVE_EVERY)
    finally:
        os._exit(1)


def rows(ctx: Any) -> Any:
    """A DataFrame of this subtask's own rows."""
    return _with_spark(ctx, lambda notes: _rows(ctx, int(notes.plan["rows"])))


def _rows(ctx: Any, count: int) -> Any:
    begin = ctx.subtask_index * count
    return ctx.spark.range(begin, begin + count).selectExpr("id", "id % 10 as key")


def by_key(ctx: Any, frame: Any) -> Any:
    """Rows of each key."""
    return _with_spark(ctx, lambda _: frame.groupBy("key").count())


def total(ctx: Any, frame: Any) -> Any:
    """The sum of all counts, by an action of its own."""
    return _with_spark(ctx, lambda _: int(frame.groupBy().sum("count").collect()[0][0]))


def replace_rows(ctx: Any) -> Any:
    """New files in place of all that lie there, by Spark."""
    return _with_spark(ctx, lambda notes: _replace_rows(ctx, notes.plan))


def _replace_rows(ctx: Any, plan: dict[str, Any]) -> int:
    count = int(plan["rows"])
    ctx.spark.range(0, count, numPartitions=2).write.parquet(ctx.output_path(str(plan["path"])))
    return count


def count_cached(ctx: Any) -> Any:
    """Cache what lies at a path, count it, and say so."""
    return _with_spark(ctx, lambda notes: _count_cached(ctx, notes))


def hold_cached(ctx: Any) -> Any:
    """The same, and live on with it: others replace the files. Begun again, it may read while they do."""
    notes = Notes(ctx)
    try:
        notes.add("begin")
        while not _is_counted(ctx, notes):
            time.sleep(_ALIVE_EVERY)
        Path(notes.plan["told"]).touch()
        if not notes.live():
            return None
        notes.add("end")
        return 1
    finally:
        notes.close()


def _is_counted(ctx: Any, notes: Notes) -> bool:
    try:
        _count_cached(ctx, notes)
    except Exception as error:
        if _GONE.search(str(error)) is None:
            raise
        # Spark takes the plan of the last read for that of the next one, with the files that are gone.
        ctx.spark.catalog.clearCache()
        return False
    return True


def _count_cached(ctx: Any, notes: Notes) -> int:
    path = str(notes.plan["path"])
    notes.add_count("counting", path)
    found = int(ctx.spark.read.parquet(path).cache().count())
    notes.add_count("counted", path, found)
    return found


def stream_rows(ctx: Any) -> Any:
    """The rows of a streaming job, a file in a batch. Here its attempt begins."""
    return _landed(ctx).option("maxFilesPerTrigger", 1).json(_landing(ctx))


def endless_rows(ctx: Any) -> Any:
    """The same, all files that are there in a batch: a drain on a busy host ends, too."""
    return _landed(ctx).json(_landing(ctx))


def _landed(ctx: Any) -> Any:
    notes = Notes(ctx)
    notes.add("begin")
    notes.close()
    return ctx.spark.readStream.schema("n long")


def _landing(ctx: Any) -> str:
    return f"{_base_of(ctx)}/landing"


def stream_table(ctx: Any, frame: Any) -> Any:
    """Spark's own file sink."""
    return frame.writeStream.format("parquet").option("path", f"{_base_of(ctx)}/table")


def stream_distinct(ctx: Any, frame: Any) -> Any:
    """The same, each row once: what it has seen is its state."""
    return stream_table(ctx, frame.dropDuplicates(["n"]))


def stream_batch(ctx: Any, batch: Any, batch_id: int) -> None:
    """Idempotent by number: a repeated batch takes the place of what was written of it."""
    batch.write.mode("overwrite").parquet(f"{_base_of(ctx)}/batches/batch={batch_id}")


def _base_of(ctx: Any) -> str:
    return str(ctx.params["steps"][ctx.operator_name]["base"])


def _with_spark(ctx: Any, work: Any) -> Any:
    notes = Notes(ctx)
    try:
        notes.add("begin")
        if not notes.live():
            return None
        made = work(notes)
        notes.add("end")
        return made
    finally:
        notes.close()


def count_blocks(ctx: Any) -> int:
    """A long Spark job that shows how far it is: multiples of seven, block after block."""
    blocks, size, found = int(ctx.params["blocks"]), int(ctx.params["size"]), 0
    for block in range(blocks):
        begin = time.monotonic()
        found += ctx.spark.range(block * size, (block + 1) * size).where("id % 7 = 0").count()
        ctx.report_progress((block + 1) / blocks, f"block {block + 1} of {blocks}, {found} found")
        time.sleep(max(0.0, float(ctx.params["seconds"]) - (time.monotonic() - begin)))
        if ctx.cancelled:
            break
    return found

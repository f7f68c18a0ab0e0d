"""What the tasks of chaos do: they write down what they do. Referred to by name, so slots import only this."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tests.chaos.ledger import Ledger, TaskLine, now

_ALIVE_EVERY = 0.2
_QUIET_EVERY = 1.0


class Notes:
    """One attempt's lines in the ledger."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx
        self.plan: dict[str, Any] = dict(ctx.params["steps"][ctx.operator_name])
        self._ledger = Ledger(ctx.params["ledger"])
        # A slot's output goes to log/attempts/<TaskManager id>/<attempt id>/stdout.
        *_, self._task_manager, self._attempt, _ = Path("/proc/self/fd/1").readlink().parts

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
                self._attempt,
                ctx.attempt_number,
                self._task_manager,
                os.getpid(),
                bool(plan["exclusive"]),
                bool(plan.get("spark")),
            )
        )

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
        if "files" in notes.plan:
            _write(ctx, str(notes.plan["files"]))
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


def _write(ctx: Any, base: str) -> None:
    directory = Path(ctx.output_path(base))
    directory.mkdir(parents=True)
    (directory / f"part-{ctx.subtask_index}").write_text(f"{ctx.subtask_index}\n")


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

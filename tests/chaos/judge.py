"""What the ledger proves: nothing lost, nothing doubled, no task restarted without a fault of its own. Only decides.

Doubled is: an exclusive subtask of which two attempts lived at once, or one that was seen to live behind the end of its
job; a task that had ended and ran again although nothing happened to its TaskManager; a job whose end changed;
rows that readers see twice. What jobs wrote and read is judged in data_judge.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos.data_judge import changed_runs, doubled_rows, wrong_counts, wrong_outputs, wrong_streams
from tests.chaos.ledger import ANY, FaultLine, InputLine, JobLine, Line, OutputLine, StreamLine, TaskLine, places

GRACE = 10.0
"""Seconds after a frozen TaskManager woke in which tasks may still be restarted for it."""
NOTICED = 7.0
"""A TaskManager frozen for less is not lost: `heartbeat.timeout` is 10 s, and 2 s may have passed before."""
_OPENING = frozenset({"kill", "terminate", "freeze"})
NO_CAUSE = "nothing that happened to a task"
OWN_FAILURE = "the task failed"
PRODUCER = "its producer ran again"


@dataclass(frozen=True, slots=True)
class Restart:
    """A subtask that began again, and why."""

    place: tuple[str, str, int]
    at: float
    attempt: str
    cause: str

    def __str__(self) -> str:
        job, vertex, subtask = self.place
        return f"{job} {vertex} {subtask}: attempt {self.attempt} began at {self.at:.3f}: {self.cause}"


@dataclass(slots=True)
class Verdict:
    """What was found. Sentences name the job. `outputs`, `counts` and sinks of `streams` were looked at."""

    acknowledged: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    outputs: int = 0
    counts: int = 0
    streams: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)

    @property
    def unfounded(self) -> list[Restart]:
        """Tasks that a fault of the control plane restarted, or nothing at all."""
        return [one for one in self.restarts if one.cause == NO_CAUSE]

    @property
    def causes(self) -> Counter[str]:
        """How many restarts for each cause."""
        return Counter(one.cause for one in self.restarts)

    @property
    def is_clean(self) -> bool:
        """True when every promise held."""
        return not (self.lost or self.wrong or self.doubled or self.unfounded)


@dataclass(frozen=True, slots=True)
class _Window:
    """From when to when tasks of a TaskManager, of one of its slots, or with its Spark may be restarted for a fault."""

    begin: float
    end: float
    fault: FaultLine

    def explains(self, lost: TaskLine, again: TaskLine | JobLine) -> bool:
        fault = self.fault
        if fault.task_manager != lost.task_manager or not (self.begin <= again.at and lost.at <= self.end):
            return False
        return (fault.role != "slot" or fault.pid == lost.pid) and (fault.role != "spark" or lost.spark)


def judge(lines: Sequence[Line]) -> Verdict:
    """Everything at once."""
    verdict = Verdict()
    tasks = places(lines)
    _judge_jobs(lines, verdict)
    _judge_ends(lines, verdict)
    windows = fault_windows(lines)
    for place, own in tasks.items():
        verdict.attempts += len({line.attempt for line in own})
        if own[0].exclusive:
            verdict.doubled += _overlaps(place, own)
        _find_restarts(own, windows, verdict)
    _judge_refusals(lines, tasks, windows, verdict)
    _blame_producers(verdict, tasks)
    _judge_finished_restarts(verdict, tasks)
    _judge_completeness(lines, tasks, verdict)
    verdict.outputs = sum(1 for line in lines if isinstance(line, OutputLine) and line.step == "ended")
    verdict.counts = sum(1 for line in lines if isinstance(line, InputLine) and line.step == "counted")
    verdict.doubled += doubled_rows(lines)
    verdict.streams = sum(1 for line in lines if isinstance(line, StreamLine))
    verdict.wrong += [*wrong_outputs(lines), *wrong_counts(lines), *wrong_streams(lines), *changed_runs(lines)]
    return verdict


# --- jobs ---------------------------------------------------------------------------------------------------------


def _judge_jobs(lines: Sequence[Line], verdict: Verdict) -> None:
    seen: dict[str, dict[str, JobLine]] = {"acknowledged": {}, "ended": {}, "checked": {}}
    for line in lines:
        if isinstance(line, JobLine) and line.step in seen:
            seen[line.step].setdefault(line.job, line)
    verdict.acknowledged = len(seen["acknowledged"])
    for job, promise in seen["acknowledged"].items():
        end, later = seen["ended"].get(job), seen["checked"].get(job)
        label = f"{promise.kind} job {job}"
        if end is None:
            verdict.lost.append(f"{label} was acknowledged and has not ended{_noted(later)}")
            continue
        verdict.ended[end.state] += 1
        if later is None:
            verdict.lost.append(f"{label} had ended and is not shown any more")
        elif (later.state, later.value) != (end.state, end.value):
            verdict.doubled.append(f"{label} ended twice: {_result(end)}, later {_result(later)}")
        verdict.wrong += [f"{label} {problem}" for problem in _wrong_end(promise, end)]


def _wrong_end(promise: JobLine, end: JobLine) -> Iterator[str]:
    if _is_refused(promise, end):
        return
    if end.state not in promise.state.split("|"):
        yield f"is {end.state} and not {promise.state}{_noted(end)}"
    elif end.state == "FINISHED" and promise.value not in {ANY, end.value}:
        yield f"has the result {end.value} and not {promise.value}"


def _is_refused(promise: JobLine, end: JobLine) -> bool:
    return bool(promise.refusal) and end.state == "FAILED" and promise.refusal in end.note


def _judge_refusals(
    lines: Sequence[Line],
    tasks: dict[tuple[str, str, int], list[TaskLine]],
    windows: Sequence[_Window],
    verdict: Verdict,
) -> None:
    """D-052: where an exclusive task runs once, a second attempt begins nothing, and only a fault asks for one."""
    once = {line.job: line for line in lines if isinstance(line, JobLine) and line.refusal}
    for place, own in tasks.items():
        if place[0] in once:
            again = {line.attempt for line in own if line.exclusive and line.number > 0}
            verdict.doubled += [
                f"job {place[0]}, {place[1]} {place[2]} runs once: {one} began" for one in sorted(again)
            ]
    for end in lines:
        if not isinstance(end, JobLine) or end.step != "ended" or end.job not in once:
            continue
        begun = [line for place, own in tasks.items() if place[0] == end.job for line in own if line.step == "begin"]
        promise = once[end.job]
        has_unknown = len({line.place for line in begun}) < sum(promise.tasks.values())
        if _is_refused(promise, end) and not any(
            (window.begin <= end.at and promise.at <= window.end)
            if has_unknown
            else any(window.explains(line, end) for line in begun)
            for window in windows
        ):
            verdict.wrong.append(f"{promise.kind} job {end.job} was refused an attempt: {NO_CAUSE}")


def _result(line: JobLine) -> str:
    return f"{line.state} with {line.value}"


def _noted(line: JobLine | None) -> str:
    return f": {line.note}" if line is not None and line.note else ""


def _judge_ends(lines: Sequence[Line], verdict: Verdict) -> None:
    """R16: behind the end of a job nothing exclusive of it lives."""
    over: set[str] = set()
    told: set[str] = set()
    for line in lines:
        if isinstance(line, JobLine) and line.step == "ended":
            over.add(line.job)
        elif isinstance(line, TaskLine) and line.exclusive and line.job in over and line.attempt not in told:
            told.add(line.attempt)
            verdict.doubled.append(f"job {line.job} had ended, and {line.vertex} {line.subtask} lived: {line.attempt}")


def _judge_completeness(
    lines: Sequence[Line], tasks: dict[tuple[str, str, int], list[TaskLine]], verdict: Verdict
) -> None:
    """A job that FINISHED has run all of its subtasks to their end."""
    finished = {
        line.job for line in lines if isinstance(line, JobLine) and (line.step, line.state) == ("ended", "FINISHED")
    }
    for line in lines:
        if not isinstance(line, JobLine) or line.step != "acknowledged" or line.job not in finished:
            continue
        for vertex, parallelism in line.tasks.items():
            for subtask in range(parallelism):
                if not any(one.step == "end" for one in tasks.get((line.job, vertex, subtask), ())):
                    verdict.lost.append(f"{line.kind} job {line.job} FINISHED without {vertex} {subtask}")


# --- attempts -----------------------------------------------------------------------------------------------------


def _overlaps(place: tuple[str, str, int], own: Sequence[TaskLine]) -> list[str]:
    """An attempt that shows life behind the begin of another one has lived beside it."""
    job, vertex, subtask = place
    replaced: set[str] = set()
    found: dict[str, str] = {}
    for before, line in pairwise(own):
        if line.attempt == before.attempt:
            continue
        replaced.add(before.attempt)
        if line.attempt in replaced and line.attempt not in found:
            found[line.attempt] = (
                f"job {job}, {vertex} {subtask} is exclusive: {line.attempt} lived ({line.step} at {line.at:.3f})"
                f" beside {before.attempt}"
            )
    return list(found.values())


def fault_windows(lines: Sequence[Line]) -> list[_Window]:
    """When tasks may suffer: from a fault until it is over, and a while longer."""
    faults = [line for line in lines if isinstance(line, FaultLine) and line.task_manager]
    windows = []
    for number, fault in enumerate(faults):
        if fault.step not in _OPENING:
            continue
        over = next((one for one in faults[number + 1 :] if _is_over(fault, one)), None)
        if fault.step == "freeze" and over is not None and over.at - fault.at < NOTICED:
            continue
        windows.append(_Window(fault.at, float("inf") if over is None else over.at + GRACE, fault))
    return windows


def _is_over(fault: FaultLine, later: FaultLine) -> bool:
    return (later.role, later.name, later.pid) == (fault.role, fault.name, fault.pid) and later.step in {"wake", "gone"}


def _find_restarts(own: Sequence[TaskLine], windows: Sequence[_Window], verdict: Verdict) -> None:
    begun: list[TaskLine] = []
    for line in own:
        if line.step == "begin" and not (begun and _is_late(line, begun[-1], windows)):
            begun.append(line)
    for previous, again in pairwise(begun):
        failed = any(line.step == "fail" and line.attempt == previous.attempt for line in own)
        cause = OWN_FAILURE if failed else _fault_of(previous, again, windows)
        verdict.restarts.append(Restart(again.place, again.at, again.attempt, cause))


def _is_late(line: TaskLine, newer: TaskLine, windows: Sequence[_Window]) -> bool:
    """A TaskManager that was frozen begins what it had been sent before, though it was replaced meanwhile."""
    return (
        line.number < newer.number
        and not line.exclusive
        and any(
            window.fault.step == "freeze"
            and window.fault.task_manager == line.task_manager
            and window.begin <= line.at <= window.end
            for window in windows
        )
    )


def _fault_of(previous: TaskLine, again: TaskLine, windows: Sequence[_Window]) -> str:
    for window in windows:
        if window.explains(previous, again):
            return f"{window.fault.role} {window.fault.step}"
    return NO_CAUSE


def _blame_producers(verdict: Verdict, tasks: dict[tuple[str, str, int], list[TaskLine]]) -> None:
    """A reader begins again when another vertex of its job, in an attempt of its own, has had to since it began."""
    again: dict[str, list[tuple[float, str]]] = {}
    for one in verdict.restarts:
        if one.cause != NO_CAUSE:
            again.setdefault(one.place[0], []).append((one.at, one.place[1]))
    for number, one in enumerate(verdict.restarts):
        if one.cause != NO_CAUSE:
            continue
        begins = [line.at for line in tasks[one.place] if line.step == "begin" and line.attempt != one.attempt]
        since = begins[max(0, bisect_left(begins, one.at) - 1)]
        if any(since <= at <= one.at and vertex != one.place[1] for at, vertex in again.get(one.place[0], ())):
            verdict.restarts[number] = Restart(one.place, one.at, one.attempt, PRODUCER)


def _judge_finished_restarts(verdict: Verdict, tasks: dict[tuple[str, str, int], list[TaskLine]]) -> None:
    for one in verdict.unfounded:
        job, vertex, subtask = one.place
        ended = [line for line in tasks[one.place] if line.step == "end" and line.at <= one.at]
        if ended:
            verdict.doubled.append(
                f"job {job}, {vertex} {subtask} had ended in {ended[-1].attempt}: {one.attempt} began"
            )

"""The report of a run: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.measure import percentile
from tests.chaos.judge import Verdict
from tests.chaos.ledger import FaultLine, JobLine, Line, TaskLine

_OPENING = frozenset({"kill", "terminate", "freeze"})
_SHOWN_MAX = 20
ELSEWHERE = "its tasks run elsewhere"


@dataclass(slots=True)
class ChaosReport:
    """Everything that is told at the end."""

    settings: Mapping[str, Any]
    verdict: Verdict
    faults: Mapping[str, int]
    recoveries: Mapping[str, Sequence[float]]
    errors: Sequence[str] = field(default_factory=tuple)
    problems: Sequence[str] = field(default_factory=tuple)

    @property
    def is_clean(self) -> bool:
        """True when nothing was lost, doubled, or restarted by the control plane."""
        return self.verdict.is_clean

    def to_json(self) -> str:
        """One line."""
        verdict = self.verdict
        return json.dumps(
            {
                "settings": dict(self.settings),
                "clean": self.is_clean,
                "jobs": {"acknowledged": verdict.acknowledged, **verdict.ended},
                "lost": verdict.lost,
                "wrong": verdict.wrong,
                "doubled": verdict.doubled,
                "attempts": verdict.attempts,
                "outputs": verdict.outputs,
                "counts": verdict.counts,
                "streams": verdict.streams,
                "restarts": dict(verdict.causes),
                "restarted-by-control-plane": [str(one) for one in verdict.unfounded],
                "faults": dict(self.faults),
                "recovery-seconds": {name: sorted(values) for name, values in self.recoveries.items()},
                "client-errors": list(self.errors),
                "problems": list(self.problems),
            }
        )

    def table(self) -> str:
        """For people: figures first, then each sentence that somebody has to read."""
        verdict = self.verdict
        ended = ", ".join(f"{count} {state}" for state, count in sorted(verdict.ended.items()))
        rows = [
            ("jobs acknowledged", f"{verdict.acknowledged}"),
            ("jobs ended", f"{sum(verdict.ended.values())} ({ended})"),
            ("jobs lost", f"{len(verdict.lost)}"),
            ("jobs with a wrong end", f"{len(verdict.wrong)}"),
            ("jobs or tasks doubled", f"{len(verdict.doubled)}"),
            ("attempts of tasks", f"{verdict.attempts}"),
            ("outputs looked at", f"{verdict.outputs}"),
            ("counts of inputs that change", f"{verdict.counts}"),
            ("sinks of streams counted", f"{verdict.streams}"),
            ("tasks restarted by the control plane", f"{len(verdict.unfounded)}"),
            *((f"tasks restarted: {cause}", f"{count}") for cause, count in sorted(verdict.causes.items())),
            *((f"faults: {name}", f"{count}") for name, count in sorted(self.faults.items())),
            *((f"seconds, {name}", _distribution(values)) for name, values in sorted(self.recoveries.items())),
            ("errors that clients were told", f"{len(self.errors)}"),
        ]
        width = max(len(name) for name, _ in rows)
        settings = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        lines = [f"== chaos: {settings}", *(f"{name.ljust(width)}  {value}" for name, value in rows)]
        return "\n".join([*lines, *self._sentences()])

    def _sentences(self) -> list[str]:
        verdict = self.verdict
        told = {
            "LOST": verdict.lost,
            "WRONG": verdict.wrong,
            "DOUBLED": verdict.doubled,
            "RESTARTED": [str(one) for one in verdict.unfounded],
            "CLIENT": self.errors,
            "PROBLEM": self.problems,
        }
        lines = []
        for label, sentences in told.items():
            lines += [f"{label}: {one}" for one in sentences[:_SHOWN_MAX]]
            if len(sentences) > _SHOWN_MAX:
                lines.append(f"{label}: and {len(sentences) - _SHOWN_MAX} more")
        return lines


def _distribution(values: Sequence[float]) -> str:
    middle, high = percentile(values, 50), percentile(values, 90)
    return f"p50 {middle:.2f}  p90 {high:.2f}  max {max(values):.2f}  ({len(values)})"


def count_faults(lines: Sequence[Line]) -> dict[str, int]:
    """How often what happened to which role."""
    found: dict[str, int] = {}
    for line in lines:
        if isinstance(line, FaultLine) and line.step in _OPENING:
            name = f"{line.role} {line.step}"
            found[name] = found.get(name, 0) + 1
    return found


def recoveries(lines: Sequence[Line]) -> dict[str, list[float]]:
    """Seconds until what a fault had taken was there again, by fault and what it was."""
    found: dict[str, list[float]] = {}
    for number, line in enumerate(lines):
        if not isinstance(line, FaultLine):
            continue
        if line.step == "recovered":
            found.setdefault(line.measure, []).append(line.seconds)
        elif (line.role, line.step) in {("taskmanager", "kill"), ("main", "kill"), ("guard", "kill")}:
            seconds = _seconds_elsewhere(lines, number, line)
            if seconds is not None:
                found.setdefault(f"{line.role} {line.step}: {ELSEWHERE}", []).append(seconds)
    return found


def _seconds_elsewhere(lines: Sequence[Line], number: int, fault: FaultLine) -> float | None:
    """Until the last task that lived on the TaskManager has begun again; None when there was none, or a job ended."""
    living: dict[tuple[str, str, int], TaskLine] = {}
    for line in lines[:number]:
        if isinstance(line, TaskLine) and line.task_manager == fault.task_manager:
            if line.step in {"begin", "alive"}:
                living[line.place] = line
            else:
                living.pop(line.place, None)
    last: float | None = None
    for line in lines[number:]:
        if isinstance(line, JobLine) and line.step in {"ended", "cancelled"}:
            living = {place: one for place, one in living.items() if place[0] != line.job}
        elif isinstance(line, TaskLine) and _is_next(line, living.get(line.place)):
            last = line.at - fault.at
            del living[line.place]
        if not living:
            break
    return last


def _is_next(line: TaskLine, lost: TaskLine | None) -> bool:
    return lost is not None and line.step == "begin" and line.attempt != lost.attempt

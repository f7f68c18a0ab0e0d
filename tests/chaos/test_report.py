"""What is read out of the ledger beside the verdict: counts of faults, and how long recovery took."""

from __future__ import annotations

import json

from tests.chaos.judge import judge
from tests.chaos.ledger import FaultLine, Line
from tests.chaos.report import ELSEWHERE, ChaosReport, count_faults, recoveries
from tests.chaos.test_judge import ACKNOWLEDGED, AGAIN, ENDED, KILLED, ONCE, fault, task

KILLED_TWO: list[Line] = [
    ACKNOWLEDGED,
    task(1, "begin"),
    task(1.1, "begin", vertex="w"),
    task(1.2, "begin", vertex="over"),
    task(1.3, "end", vertex="over"),
    task(1.4, "begin", vertex="elsewhere", tm="tm-1"),
    *KILLED,
    task(4, "begin", "a1", tm="tm-1"),
    task(4.5, "begin", "a1", vertex="elsewhere", tm="tm-1"),
    task(6, "begin", "a1", vertex="w", tm="tm-1"),
    *ENDED,
]


def test_the_last_task_of_a_killed_task_manager_counts() -> None:
    assert recoveries(KILLED_TWO) == {f"taskmanager kill: {ELSEWHERE}": [4.0]}


def test_a_task_whose_job_ended_is_not_waited_for() -> None:
    assert recoveries([ACKNOWLEDGED, task(1, "begin"), *KILLED, *ENDED, *AGAIN]) == {}
    assert recoveries([*ONCE, *KILLED]) == {}, "nothing ran there"


def test_what_was_measured_is_kept_by_what_it_is() -> None:
    lines = [
        FaultLine(1, "recovered", "jobmaster", "jobmaster-0", measure="its jobs have other owners", seconds=seconds)
        for seconds in (0.5, 0.25)
    ]
    assert recoveries(lines) == {"its jobs have other owners": [0.5, 0.25]}


def test_faults_are_counted_once_each() -> None:
    lines = [*KILLED, fault(5, "freeze", "etcd"), fault(6, "wake", "etcd"), fault(7, "freeze", "etcd")]
    assert count_faults(lines) == {"taskmanager kill": 1, "etcd freeze": 2}


def test_the_report_says_what_was_broken() -> None:
    def report(lines: list[Line]) -> ChaosReport:
        return ChaosReport({"seed": 7}, judge(lines), count_faults(lines), recoveries(lines), ["refused"], ["stuck"])

    good, bad = report(KILLED_TWO), report([ACKNOWLEDGED, task(1, "begin"), *AGAIN])
    assert "jobs acknowledged" in good.table()
    assert "RESTARTED: job v 0: attempt a1" in bad.table()
    assert "CLIENT: refused\nPROBLEM: stuck" in bad.table()
    assert not bad.is_clean
    assert json.loads(bad.to_json())["restarts"] == {"nothing that happened to a task": 1}
    assert json.loads(good.to_json())["recovery-seconds"] == {f"taskmanager kill: {ELSEWHERE}": [4.0]}

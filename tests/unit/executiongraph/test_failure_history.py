"""Which failures of a job its history keeps: what somebody has to look at stays longer than what is nobody's fault."""

from __future__ import annotations

import pytest

from runtime.common.ids import JobId
from runtime.executiongraph.archived import ArchivedException
from runtime.executiongraph.core.failures import FailureHistory
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.task import SLOT_PREEMPTED, FailureInfo


def history(roots_max: int = 3) -> FailureHistory:
    return FailureHistory(ExecutionGraph(JobId("a" * 32), 1, submit_millis=0), roots_max, lambda _: {})


def failure(name: str) -> ArchivedException:
    """Of a task's own code, or with a lower-case name one that is nobody's fault."""
    is_nobodys = name.islower()
    told = FailureInfo(
        SLOT_PREEMPTED if is_nobodys else "ValueError", name, "", "SYSTEM", True, 0, is_isolation=is_nobodys
    )
    return ArchivedException(told, "task", "", "")


def kept(names: str) -> str:
    """What is left of these failures, oldest first; one in brackets happened while the one before was handled."""
    made = history()
    is_concurrent = False
    for name in names:
        if name in "()":
            is_concurrent = name == "("
        else:
            made.add(failure(name), is_concurrent=is_concurrent)
    return "".join(one.failure.message for one in reversed(made.archived()))


@pytest.mark.parametrize(
    ("names", "left"),
    [
        ("ABC", "ABC"),
        ("ABCD", "BCD"),
        ("Aabc", "Abc"),
        ("Aabcdefgh", "Agh"),
        ("ABCabcdef", "BCf"),
        ("aABC", "ABC"),
        ("AabB", "AbB"),
        ("ABa(C)b", "Bab"),
        ("abcd", "bcd"),
    ],
)
def test_what_is_nobodys_fault_pushes_out_its_own_kind_first(names: str, left: str) -> None:
    assert kept(names) == left


def test_the_latest_is_always_told() -> None:
    made = history()
    for name in "ABCa":
        made.add(failure(name), is_concurrent=False)
    assert made.latest == f"{SLOT_PREEMPTED}: a"

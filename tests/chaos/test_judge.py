"""The judge finds what it is there for: each row is a short history and what must be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.judge import GRACE, NO_CAUSE, OWN_FAILURE, PRODUCER, judge
from tests.chaos.ledger import FaultLine, InputLine, JobLine, Ledger, Line, OutputLine, TaskLine, read


def task(
    at: float,
    step: str,
    attempt: str = "a0",
    *,
    vertex: str = "v",
    tm: str = "tm-0",
    pid: int = 10,
    exclusive: bool = True,
    spark: bool = False,
) -> TaskLine:
    number = int(attempt[1:])
    return TaskLine(at, step, "job", vertex, 0, attempt, number, tm, pid, exclusive, spark)


def job(at: float, step: str, state: str = "FINISHED", value: str = "1") -> JobLine:
    return JobLine(at, step, "job", "nap", state, value, {"v": 1})


def fault(
    at: float, step: str, role: str = "taskmanager", *, name: str = "0", tm: str = "tm-0", pid: int = 10
) -> FaultLine:
    return FaultLine(at, step, role, name, pid, "" if role in {"jobmaster", "jobmanager", "etcd"} else tm)


ACKNOWLEDGED = job(0, "acknowledged")
ENDED: list[Line] = [job(90, "ended"), job(99, "checked")]
ONCE: list[Line] = [ACKNOWLEDGED, task(1, "begin"), task(2, "alive"), task(3, "end"), *ENDED]
KILLED: list[Line] = [fault(2, "kill"), fault(2.5, "gone")]
AGAIN: list[Line] = [task(4, "begin", "a1", tm="tm-1"), task(5, "end", "a1", tm="tm-1"), *ENDED]


def late(*faults: Line, exclusive: bool = False) -> list[Line]:
    """Attempt a1 runs, then a0 begins where those faults were."""
    return [
        ACKNOWLEDGED,
        task(1, "begin", "a1", tm="tm-1", exclusive=exclusive),
        *faults,
        task(2, "end", "a1", tm="tm-1", exclusive=exclusive),
        task(3, "begin", exclusive=exclusive),
        task(3.2, "cancelled", exclusive=exclusive),
        *ENDED,
    ]


def killed_by(*faults: Line, spark: bool = False, pid: int = 10) -> list[Line]:
    return [ACKNOWLEDGED, task(1, "begin", spark=spark, pid=pid), *faults, *AGAIN]


@pytest.mark.parametrize(
    ("lines", "causes"),
    [
        pytest.param(ONCE, {}, id="once"),
        pytest.param([], {}, id="nothing"),
        pytest.param(late(fault(-8, "freeze"), fault(2.9, "wake")), {}, id="a frozen one begins what is replaced"),
        pytest.param(killed_by(*KILLED), {"taskmanager kill": 1}, id="its TaskManager was killed"),
        pytest.param(
            killed_by(fault(-6, "freeze"), fault(3, "wake")), {"taskmanager freeze": 1}, id="its TaskManager was frozen"
        ),
        pytest.param(
            killed_by(fault(2, "kill", "slot")), {"slot kill": 1}, id="its slot was killed, and nobody saw it gone"
        ),
        pytest.param(killed_by(fault(2, "kill", "spark"), spark=True), {"spark kill": 1}, id="its Spark was killed"),
        pytest.param(
            [ACKNOWLEDGED, task(1, "begin"), task(2, "fail"), *AGAIN], {OWN_FAILURE: 1}, id="it failed on purpose"
        ),
        pytest.param(
            [ACKNOWLEDGED, task(1, "begin"), task(1.5, "end"), *KILLED, *AGAIN],
            {"taskmanager kill": 1},
            id="its report died with its TaskManager",
        ),
        pytest.param(
            [
                ACKNOWLEDGED,
                task(1, "begin", vertex="w", exclusive=False),
                *KILLED,
                task(2.6, "begin"),
                task(3, "begin", "a1", vertex="w", exclusive=False),
                *AGAIN,
            ],
            {"taskmanager kill": 2},
            id="two tasks of a TaskManager that is being lost",
        ),
        pytest.param(
            [
                ACKNOWLEDGED,
                task(1, "begin", vertex="w", exclusive=False),
                task(1.5, "begin", tm="tm-1", exclusive=False),
                *KILLED,
                task(3, "begin", "a1", vertex="w", exclusive=False),
                task(4, "begin", "a1", tm="tm-1", exclusive=False),
                task(5, "end", "a1", tm="tm-1", exclusive=False),
                *ENDED,
            ],
            {"taskmanager kill": 1, PRODUCER: 1},
            id="a reader follows its producer",
        ),
        pytest.param(
            [ACKNOWLEDGED, task(1, "begin", exclusive=False), *KILLED, task(4, "begin", "a1", exclusive=False),
             task(5, "alive", exclusive=False), task(6, "end", "a1", exclusive=False), *ENDED],
            {"taskmanager kill": 1},
            id="a copy that is not exclusive may live a while",
        ),
        pytest.param(
            [job(0, "acknowledged", "CANCELED|FINISHED"), task(1, "begin"), task(2, "cancelled"),
             job(3, "ended", "CANCELED", ""), job(9, "checked", "CANCELED", "")],
            {},
            id="cancelled",
        ),
    ],
)  # fmt: skip
def test_what_may_happen_is_clean(lines: Sequence[Line], causes: dict[str, int]) -> None:
    verdict = judge(lines)
    assert dict(verdict.causes) == causes
    assert verdict.is_clean, verdict


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param(
            [ACKNOWLEDGED, task(1, "begin"), *KILLED, task(4, "begin", "a1", tm="tm-1"), task(5, "alive"), *ENDED],
            "a0 lived (alive at 5.000) beside a1",
            id="two live attempts of an exclusive subtask, although its TaskManager was killed",
        ),
        pytest.param(
            [ACKNOWLEDGED, task(1, "begin"), *KILLED, *AGAIN[:1], task(5, "begin"), *ENDED],
            "a0 lived (begin at 5.000) beside a1",
            id="the first attempt begins a second time",
        ),
        pytest.param(
            [*ONCE[:4], *AGAIN], "v 0 had ended in a0: a1 began", id="a whole job ran twice, and nothing had happened"
        ),
        pytest.param(
            [*ONCE[:4], fault(3.1, "kill", "jobmaster"), fault(3.2, "gone", "jobmaster"), *AGAIN],
            "v 0 had ended in a0: a1 began",
            id="an owner's death ran it twice",
        ),
        pytest.param(
            [*ONCE, task(100, "begin", "a1")], "job job had ended, and v 0 lived: a1", id="it ran after its result"
        ),
        pytest.param(
            [*ONCE[:3], ENDED[0], task(91, "alive"), ENDED[1]],
            "job job had ended, and v 0 lived: a0",
            id="an exclusive task lived after the result (R16)",
        ),
        pytest.param(
            [*ONCE[:-1], job(99, "checked", "FAILED", "")], "ended twice: FINISHED with 1, later FAILED", id="two ends"
        ),
        pytest.param([*ONCE[:-1], job(99, "checked", value="2")], "later FINISHED with 2", id="two results"),
    ],
)
def test_what_is_doubled_is_found(lines: Sequence[Line], said: str) -> None:
    verdict = judge(lines)
    assert any(said in sentence for sentence in verdict.doubled), verdict
    assert not verdict.is_clean


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param([ACKNOWLEDGED], "was acknowledged and has not ended", id="never ran"),
        pytest.param(
            [*ONCE[:4], job(99, "checked", "RUNNING", "")], "was acknowledged and has not ended", id="still runs"
        ),
        pytest.param(ONCE[:-1], "is not shown any more", id="forgotten"),
        pytest.param([ACKNOWLEDGED, task(1, "begin"), *ENDED], "FINISHED without v 0", id="a task did not end"),
    ],
)
def test_what_is_lost_is_found(lines: Sequence[Line], said: str) -> None:
    verdict = judge(lines)
    assert any(said in sentence for sentence in verdict.lost), verdict
    assert not verdict.is_clean


@pytest.mark.parametrize(
    ("end", "later", "said"),
    [
        (job(90, "ended", "FAILED", ""), job(99, "checked", "FAILED", ""), "is FAILED and not FINISHED"),
        (job(90, "ended", value="2"), job(99, "checked", value="2"), "has the result 2 and not 1"),
    ],
)
def test_a_wrong_end_is_found(end: Line, later: Line, said: str) -> None:
    verdict = judge([*ONCE[:4], end, later])
    assert any(said in sentence for sentence in verdict.wrong), verdict
    assert not verdict.is_clean


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(killed_by(), id="nothing happened"),
        pytest.param(killed_by(fault(2, "kill", "jobmaster"), fault(2.1, "gone", "jobmaster")), id="its owner died"),
        pytest.param(killed_by(fault(2, "freeze", "jobmanager"), fault(3, "wake", "jobmanager")), id="leader frozen"),
        pytest.param(killed_by(fault(2, "kill", "etcd")), id="etcd died"),
        pytest.param(killed_by(fault(2, "kill", tm="tm-7")), id="another TaskManager died"),
        pytest.param(killed_by(fault(2, "kill", "slot", pid=11)), id="another slot died"),
        pytest.param(killed_by(fault(2, "kill", "spark")), id="Spark died, which it does not use"),
        pytest.param(
            [fault(-50, "freeze"), fault(-GRACE, "wake"), *killed_by()], id="its TaskManager was frozen long before"
        ),
        pytest.param(killed_by(fault(2, "freeze"), fault(3, "wake")), id="its TaskManager was frozen for a moment"),
        pytest.param(late(), id="what is replaced begins on a TaskManager that was not frozen"),
        pytest.param(late(fault(-8, "freeze"), fault(2, "wake"), exclusive=True), id="and where it is exclusive"),
        pytest.param(killed_by(fault(4.5, "kill")), id="its TaskManager died after it had begun again"),
    ],
)
def test_a_restart_by_the_control_plane_is_found(lines: Sequence[Line]) -> None:
    verdict = judge(lines)
    assert [one.cause for one in verdict.restarts] == [NO_CAUSE]
    assert not verdict.is_clean


PROMISED = OutputLine(0, "promised", "job", "", rows=4000, old=100, is_marked=True)
SHOWN = OutputLine(90, "ended", "job", "FINISHED", rows=4000, is_marked=True)
UNTOUCHED = OutputLine(90, "ended", "job", "FAILED", rows=0, old=100, is_marked=True)


@pytest.mark.parametrize("seen", [SHOWN, UNTOUCHED, replace(UNTOUCHED, state="CANCELED")])
def test_outputs_that_are_whole_or_untouched_are_clean(seen: OutputLine) -> None:
    verdict = judge([PROMISED, seen, replace(seen, step="checked")])
    assert verdict.is_clean
    assert verdict.outputs == 1
    assert judge([replace(PROMISED, old=0, is_marked=False), replace(seen, old=0, is_marked=seen is SHOWN)]).is_clean


@pytest.mark.parametrize("step", ["ended", "checked"])
@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (replace(SHOWN, rows=3999), "is FINISHED ({step}) and shows 3999 of its 4000 rows"),
        (replace(SHOWN, old=1), "is FINISHED ({step}) and shows 1 of the 100 rows that lay there before"),
        (replace(SHOWN, strange=2), "shows 2 rows that nobody wrote"),
        (replace(SHOWN, is_marked=False), "shows no _SUCCESS"),
        (replace(SHOWN, doubled=7), "is FINISHED ({step}): 7 rows are visible more than once"),
        (replace(UNTOUCHED, rows=1), "is FAILED ({step}) and shows 1 of its 4000 rows"),
        (replace(UNTOUCHED, state="CANCELED", rows=4000), "is CANCELED ({step}) and shows 4000 of its 4000 rows"),
        (replace(UNTOUCHED, old=99), "is FAILED ({step}) and shows 99 of the 100 rows that lay there before"),
        (replace(UNTOUCHED, is_marked=False), "shows no _SUCCESS"),
    ],
)
def test_outputs_that_are_torn_doubled_or_early_are_found(seen: OutputLine, said: str, step: str) -> None:
    verdict = judge([PROMISED, replace(seen, step=step)])
    assert any(said.format(step=step) in sentence for sentence in [*verdict.wrong, *verdict.doubled]), verdict
    assert not verdict.is_clean


def test_a_mark_of_a_job_that_failed_on_an_empty_base_is_found() -> None:
    promise = replace(PROMISED, old=0, is_marked=False)
    assert judge([promise, replace(UNTOUCHED, old=0)]).wrong == ["job job is FAILED (ended) and shows _SUCCESS"]


def test_an_output_that_nobody_looked_at_is_found() -> None:
    assert judge([PROMISED, *ONCE]).wrong == ["job job is FINISHED, and nobody looked at what it shows"]


def replacing(rows: int, job_id: str) -> InputLine:
    return InputLine(0, "replacing", "/p", job_id, rows)


def replaced(rows: int, job_id: str) -> InputLine:
    return InputLine(0, "replaced", "/p", job_id, rows)


def counted(rows: int, attempt: str = "a0") -> list[Line]:
    return [InputLine(0, "counting", "/p", "job", attempt=attempt), InputLine(0, "counted", "/p", "job", rows, attempt)]


REPLACED: list[Line] = [replacing(5, "one"), replaced(5, "one")]
AGAIN_REPLACED: list[Line] = [replacing(9, "two"), replaced(9, "two")]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([*REPLACED, *counted(5), *AGAIN_REPLACED, *counted(9)], id="each what lay there"),
        pytest.param([*REPLACED, *counted(5)[:1], *AGAIN_REPLACED, *counted(5)[1:]], id="the old ones, begun before"),
        pytest.param([*REPLACED, AGAIN_REPLACED[0], *counted(14), AGAIN_REPLACED[1]], id="both, while they change"),
        pytest.param([*REPLACED, *counted(5)[:1], *AGAIN_REPLACED, *counted(9, "a1")], id="killed while it counted"),
    ],
)
def test_counts_of_what_lay_there_are_clean(lines: Sequence[Line]) -> None:
    verdict = judge(lines)
    assert verdict.is_clean
    assert verdict.counts == sum(1 for line in lines if isinstance(line, InputLine) and line.step == "counted") > 0


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param([*REPLACED, *AGAIN_REPLACED, *counted(5)], "counted 5 rows in a0 where 9 lay", id="old ones"),
        pytest.param([*REPLACED, *AGAIN_REPLACED, *counted(14)], "counted 14 rows in a0 where 9 lay", id="both"),
        pytest.param([*REPLACED, *counted(4)], "counted 4 rows in a0 where 5 lay", id="too few"),
        pytest.param(
            [*REPLACED, AGAIN_REPLACED[0], *counted(4), AGAIN_REPLACED[1]],
            "counted 4 rows in a0 where 5 to 14 lay",
            id="too few while they change",
        ),
        pytest.param(
            [*REPLACED, *counted(5)[:1], *AGAIN_REPLACED, *counted(5)[1:], *counted(5, "a1")],
            "counted 5 rows in a1 where 9 lay",
            id="the next attempt, out of the cache of the first",
        ),
    ],
)
def test_counts_of_old_files_are_found(lines: Sequence[Line], said: str) -> None:
    verdict = judge(lines)
    assert [said in sentence for sentence in verdict.wrong] == [True], verdict
    assert not verdict.is_clean


ONLY_ONCE = replace(ACKNOWLEDGED, refusal="runs once only")
REFUSED: list[Line] = [
    replace(job(90, step, "FAILED", ""), note="v: an exclusive task runs once only with")
    for step in ("ended", "checked")
]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([ONLY_ONCE, *ONCE[1:]], id="no second attempt"),
        pytest.param([ONLY_ONCE, task(1, "begin"), *KILLED, *REFUSED], id="refused after a fault"),
        pytest.param([ONLY_ONCE, *KILLED, *REFUSED], id="refused before it had begun"),
    ],
)
def test_a_refusal_of_a_second_attempt_is_an_end(lines: Sequence[Line]) -> None:
    verdict = judge(lines)
    assert verdict.is_clean, verdict


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param([ONLY_ONCE, task(1, "begin"), *KILLED, *AGAIN], "v 0 runs once: a1 began", id="it ran again"),
        pytest.param([ACKNOWLEDGED, task(1, "begin"), *KILLED, *REFUSED], "is FAILED and not FINISHED", id="on local"),
        pytest.param([ONLY_ONCE, task(1, "begin"), *REFUSED], f"was refused an attempt: {NO_CAUSE}", id="no fault"),
        pytest.param(
            [ONLY_ONCE, task(1, "begin"), fault(2, "kill", "jobmaster"), *REFUSED], NO_CAUSE, id="its owner died"
        ),
        pytest.param([ONLY_ONCE, task(1, "begin"), fault(2, "kill", tm="tm-7"), *REFUSED], NO_CAUSE, id="another one"),
        pytest.param([ONLY_ONCE, *REFUSED], NO_CAUSE, id="no fault, and it had not begun"),
        pytest.param(
            [ONLY_ONCE, task(1, "begin"), *KILLED, *(replace(job(90, one, "FAILED", ""), note="broken")
             for one in ("ended", "checked"))],
            "is FAILED and not FINISHED: broken",
            id="another failure",
        ),
    ],
)  # fmt: skip
def test_a_second_attempt_or_a_refusal_without_a_fault_is_found(lines: Sequence[Line], said: str) -> None:
    verdict = judge(lines)
    assert any(said in sentence for sentence in [*verdict.wrong, *verdict.doubled]), verdict
    assert not verdict.is_clean


def test_lines_survive_the_file(tmp_path: Path) -> None:
    lines: list[Line] = [*ONCE, *KILLED, PROMISED, *REPLACED, *counted(5)]
    path = tmp_path / "ledger"
    one, other = Ledger(str(path)), Ledger(str(path))
    for number, line in enumerate(lines):
        (one, other)[number % 2].add(line)
    one.close()
    other.close()
    assert read(path) == lines
    with path.open("a") as file:
        file.write('{"who":"task",')
    assert read(path) == lines

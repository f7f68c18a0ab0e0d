"""The seed decides who suffers what, and which jobs are submitted."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.chaos.__main__ import kinds_of, parse
from tests.chaos.fate import CONTROL_PLANE, FaultKind, faults
from tests.chaos.jobs import KINDS, jobs
from tests.chaos.ledger import ENDLESS, STREAM


def test_a_seed_decides_the_faults() -> None:
    kinds = list(FaultKind)
    first, again = (list(islice(faults(7, 2.0, kinds), 300)) for _ in range(2))
    assert first == again
    assert first != list(islice(faults(8, 2.0, kinds), 300))
    assert {one.kind for one in first} == set(kinds)
    assert all(1.0 <= one.pause <= 3.0 for one in first)
    assert all((one.duration > 0) == (one.kind.step == "freeze") for one in first)


@pytest.mark.parametrize(("count", "picked"), [(1, {0}), (2, {0, 1}), (3, {0, 1, 2})])
def test_every_member_of_a_role_may_be_picked(count: int, picked: set[int]) -> None:
    assert {one.pick(range(count)) for one in islice(faults(1, 1.0, list(FaultKind)), 100)} == picked


def test_without_kinds_nothing_happens() -> None:
    assert list(faults(1, 1.0, [])) == []


def test_a_seed_decides_the_jobs(tmp_path: Path) -> None:
    def drawn(seed: int, client: int) -> list[tuple[str, object, float]]:
        return [
            (job.kind, job.build(tmp_path / "ledger").graph.model_dump(), pause)
            for job, pause in islice(jobs(seed, client, tmp_path, list(KINDS)), 60)
        ]

    first = drawn(7, 0)
    assert first == drawn(7, 0)
    assert first != drawn(8, 0)
    assert first != drawn(7, 1)
    assert {kind for kind, _, _ in first} == set(KINDS)


def test_each_client_begins_with_another_kind(tmp_path: Path) -> None:
    begun = [next(jobs(7, client, tmp_path, list(KINDS)))[0].kind for client in range(len(KINDS) + 1)]
    assert begun == [*reversed(KINDS), list(KINDS)[-1]]


def test_every_vertex_of_a_job_has_a_plan(tmp_path: Path) -> None:
    kinds = [kind for kind in KINDS if kind not in {STREAM, ENDLESS}]  # queries have batches in place of steps
    drawn = (job for job, _ in islice(jobs(3, 0, tmp_path, kinds), 60))
    for job in (one for first in drawn for one in [first, *first.after]):
        vertices = job.build(tmp_path / "ledger").graph.vertices
        assert {one.name: one.parallelism for one in vertices} == job.tasks
        assert {one.name: one.exclusive for one in vertices} == {
            name: step["exclusive"] for name, step in job.steps.items()
        }


def test_faults_are_named() -> None:
    assert kinds_of("all") == list(FaultKind)
    assert set(kinds_of("control-plane")) == CONTROL_PLANE
    assert kinds_of("etcd-kill,jobmaster-kill") == [FaultKind.JOBMASTER_KILL, FaultKind.ETCD_KILL]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--faults", "meteor"], "'meteor' is not a valid FaultKind"),
        (["--jobs", "no-op,nope"], "no kind nope"),
        (["--minute", "3"], "unrecognized arguments"),
    ],
)
def test_a_wrong_command_line_says_so(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)
    assert said in capsys.readouterr().err

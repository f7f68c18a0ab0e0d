"""Fixed seeds, and those that found something: each run of bin/test.sh has some of them (tests/suite/rotated.txt)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit.mutations import BY_SEEDS, ROOT, mutated, simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SEEDS = Path(__file__).with_name("seeds.txt")
EXTENDED = pytest.mark.extended


def known_seeds() -> list[int]:
    """One a line, with what it has found behind it."""
    lines = SEEDS.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def in_pieces(seeds: Sequence[int], size: int) -> list[str]:
    return [",".join(map(str, seeds[begin : begin + size])) for begin in range(0, len(seeds), size)]


KNOWN = in_pieces(known_seeds(), 4)
FIXED = [*in_pieces(range(1, 21), 4), *(pytest.param(one, marks=EXTENDED) for one in in_pieces(range(21, 201), 60))]
FOUND_IN_PROCESS = "673980095,990012,155946171"
"""A record of events that etcd had changed ended its owner, and the job waited for another one for ever. A TaskManager
that stopped while the leader changed left before anybody had taken the reports of what had finished. A submit whose
answer was lost, and then its graph, was told that the job is of somebody else."""
IN_PROCESS = [
    FOUND_IN_PROCESS,
    *in_pieces(range(1, 11), 5),
    *(pytest.param(one, marks=EXTENDED) for one in in_pieces(range(11, 61), 50)),
]

FOUND_WITH_QUEUES = "71003158"
"""A submit that found its id taken by a job that cannot be read ran its own graph as that job."""
QUEUES = [
    FOUND_WITH_QUEUES,
    *in_pieces(range(1, 9), 4),
    *(pytest.param(one, marks=EXTENDED) for one in in_pieces(range(9, 61), 52)),
]

FOUND_WITH_DRIVER = ["61,125,273", "71007056,71007144,72101267"]
"""Slots of a worker that drained were not counted; starts that failed, and happened all the same, were not either.
Judges were wrong: the driver said that a worker runs before it ran; one that hangs was taken for one with slots; what a
leader that wakes behind its term hears of work was taken for news."""
FOUND_WITH_DRIVER_IN_PROCESS = "71009078,71009102,71009126,71009162,71009269,72401137"
"""A leader that woke behind its term released a worker with work; one that was back, and emptied between two looks, was
given up at once. The summary of a job's end was taken for an older one. A judge took a query for new where its
savepoint was restored when the drain began."""
DRIVER = [
    *FOUND_WITH_DRIVER,
    *in_pieces(range(1, 9), 4),
    *(pytest.param(one, marks=EXTENDED) for one in in_pieces(range(9, 151), 71)),
]
MODES = [(), pytest.param(("--queues", "--adaptive"), marks=EXTENDED), pytest.param(("--in-process",), marks=EXTENDED)]

ADAPTIVE = [*in_pieces(range(1, 9), 4), *(pytest.param(one, marks=EXTENDED) for one in in_pieces(range(9, 151), 71))]

SPECULATIVE = [*in_pieces(range(1, 9), 4), *(pytest.param(one, marks=EXTENDED) for one in in_pieces(range(9, 201), 64))]

ON_DEMAND = [*in_pieces(range(1, 9), 4), *(pytest.param(one, marks=EXTENDED) for one in in_pieces(range(9, 151), 71))]

REACTIVE = [*in_pieces(range(1, 9), 4), *(pytest.param(one, marks=EXTENDED) for one in in_pieces(range(9, 151), 71))]


@pytest.mark.parametrize("seeds", KNOWN)
def test_seeds_that_found_something_are_clean(seeds: str) -> None:
    done = simulate(ROOT, "--jobs", "2", "--only", seeds)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seeds", FIXED)
def test_fixed_seeds_are_clean(seeds: str) -> None:
    done = simulate(ROOT, "--jobs", "2", "--only", seeds)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seeds", IN_PROCESS)
def test_seeds_with_job_masters_inside_the_job_manager_are_clean(seeds: str) -> None:
    done = simulate(ROOT, "--jobs", "2", "--only", seeds, "--in-process")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_decides_everything() -> None:
    """Also in another process, where text hashes otherwise, objects lie elsewhere, and other seeds ran before it."""
    everything = ("--digest", "--faults", "all", "--failures-max", "99")
    runs = [("0", "1,2,3,4,5"), ("4711", "9,5,4,3,2,1")]
    first, second = (simulate(ROOT, *everything, "--only", seeds, hash_seed=one) for one, seeds in runs)
    digests = [
        {line.split()[1]: line.split()[-1] for line in done.stdout.splitlines() if line.startswith("seed ")}
        for done in (first, second)
    ]
    assert len(digests[0]) == 5
    del digests[1]["9:"]
    assert digests[0] == digests[1]


def test_a_failing_seed_tells_how_to_replay_it(tmp_path: Path) -> None:
    """With a mistake that shows in every seed."""
    patch = next(patch for patch in BY_SEEDS if patch.stem == "report-acknowledged-before-event")
    tree = mutated(patch, tmp_path / "tree")
    done = simulate(tree, "--seeds", "20")
    assert done.returncode == 1
    seed = done.stdout.partition("replay: bin/simulate.sh --seeds 1 --from ")[2].split()[0]
    again = simulate(tree, "--seeds", "1", "--from", seed, "--story")
    assert again.returncode == 1
    assert "*** may do: " in again.stdout
    assert "!!!!!!!!!!" in again.stdout


@pytest.mark.parametrize("seeds", QUEUES)
def test_seeds_with_queues_are_clean(seeds: str) -> None:
    done = simulate(ROOT, "--jobs", "2", "--queues", "--only", seeds)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("seeds", DRIVER)
def test_seeds_with_a_driver_are_clean(seeds: str, modes: tuple[str, ...]) -> None:
    done = simulate(ROOT, "--jobs", "2", "--driver", *modes, "--only", seeds)
    assert done.returncode == 0, done.stdout + done.stderr


def test_seeds_with_a_driver_and_job_masters_inside_the_job_manager_are_clean() -> None:
    modes = ("--driver", "--in-process")
    done = simulate(ROOT, "--jobs", "2", *modes, "--only", FOUND_WITH_DRIVER_IN_PROCESS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seeds", ADAPTIVE)
def test_seeds_with_chosen_parallelism_are_clean(seeds: str) -> None:
    done = simulate(ROOT, "--jobs", "2", "--adaptive", "--only", seeds)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seeds", ON_DEMAND)
def test_seeds_with_splits_on_demand_are_clean(seeds: str) -> None:
    done = simulate(ROOT, "--jobs", "2", "--on-demand", "--only", seeds)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seeds", REACTIVE)
def test_seeds_with_queries_that_follow_their_slots_are_clean(seeds: str) -> None:
    done = simulate(ROOT, "--jobs", "2", "--reactive", "--only", seeds)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seeds", SPECULATIVE)
def test_seeds_with_a_slow_host_are_clean(seeds: str) -> None:
    done = simulate(ROOT, "--jobs", "2", "--speculative", "--only", seeds)
    assert done.returncode == 0, done.stdout + done.stderr

"""Fresh seeds in each run: few each time, many in a week; twenty times as many with --all.

A failing seed prints the command that replays it.
"""

from __future__ import annotations

import os
import secrets

import pytest

from tests.kit.mutations import ROOT, simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FRESH = (20, pytest.param(400, marks=pytest.mark.extended))
FRESH_IN_PROCESS = (5, pytest.param(100, marks=pytest.mark.extended))


def fresh(count: int) -> tuple[str, ...]:
    start = int(os.environ.get("FLINKLIKE_SIMULATION_SEED") or 1_000_000 + secrets.randbelow(1_000_000_000))
    return ("--jobs", "2", "--seeds", str(count), "--from", str(start))


@pytest.mark.parametrize("count", FRESH)
def test_fresh_seeds_are_clean(count: int) -> None:
    done = simulate(ROOT, *fresh(count))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("count", FRESH_IN_PROCESS)
def test_fresh_seeds_with_job_masters_inside_the_job_manager_are_clean(count: int) -> None:
    done = simulate(ROOT, *fresh(count), "--in-process")
    assert done.returncode == 0, done.stdout + done.stderr

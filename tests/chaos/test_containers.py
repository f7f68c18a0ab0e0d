"""Chaos over docker as a test: a minute of it, or five, with a seed of its own each time, which it tells."""

from __future__ import annotations

from random import SystemRandom

import pytest

from tests.chaos.containers import Settings, run
from tests.kit.cluster.compose import why_not

REASON = why_not()
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(REASON), reason=REASON),
]

SECONDS = (60.0, pytest.param(300.0, marks=pytest.mark.extended))


@pytest.mark.parametrize("seconds", SECONDS)
def test_the_cluster_of_the_compose_file_survives_the_loss_of_any_container(seconds: float) -> None:
    seed = SystemRandom().randrange(1_000_000)
    report = run(Settings(seconds, 7.0, seed))
    print(report.table())
    again = f"bin/chaos.sh containers --seed {seed} --minutes {seconds / 60:g} --every 7"
    assert report.is_clean, f"{again}\n{report.table()}"
    assert report.verdict.acknowledged > 10
    assert len(report.faults) > 2

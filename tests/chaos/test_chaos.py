"""Chaos as a test: less than a minute of it, or two minutes, with a seed of its own each time, which it tells."""

from __future__ import annotations

from pathlib import Path
from random import SystemRandom

import pytest

from tests.chaos import demo
from tests.chaos.__main__ import OPTIONS, WITH_SPARK, run
from tests.chaos.fate import FaultKind
from tests.chaos.jobs import KINDS
from tests.chaos.run import Settings

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.spark, pytest.mark.slow]

SECONDS = (45.0, pytest.param(120.0, marks=pytest.mark.extended))
"""Of faults; starting, healing, the last jobs and stopping take about another minute."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seconds", SECONDS)
def test_nothing_is_lost_doubled_or_restarted_by_the_control_plane(
    seconds: float, tmp_path: Path, class_archive: Path | None
) -> None:
    seed = SystemRandom().randrange(1_000_000)
    settings = Settings(seconds, 7.0, seed, 6, list(FaultKind), list(KINDS))
    report = run(settings, {**OPTIONS, **WITH_SPARK}, class_archive=class_archive, keep=tmp_path)
    print(report.table())
    assert report.is_clean, f"bin/chaos.sh --seed {seed} --minutes {seconds / 60:g} --every 7\n{report.table()}"
    assert report.verdict.acknowledged > 10
    assert len(report.faults) > 2


@pytest.mark.extended
def test_the_demonstration_shows_one_attempt(class_archive: Path | None, capsys: pytest.CaptureFixture[str]) -> None:
    is_good = demo.show(50, class_archive=class_archive)
    said = capsys.readouterr().out
    assert is_good, said
    assert said.count("kill -9") == 2
    assert "The same attempt lived through both." in said

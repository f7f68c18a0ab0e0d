"""An attached run without a terminal says why its job waits, when that is news, and not too often."""

from __future__ import annotations

from airflow_flinklike.cli.waiting import FIRST_SECONDS, INTERVAL_SECONDS, WaitingLines


def test_a_reason_is_told_once_and_anew_when_it_has_changed() -> None:
    reasons = ["no slot", "no slot", "", "no slot", "2nd of 3"]
    asked = iter(reasons)
    lines = WaitingLines(lambda: next(asked), 100.0)
    begin = 100.0 + FIRST_SECONDS
    told = [lines.take(begin + number * INTERVAL_SECONDS) for number in range(len(reasons))]
    assert told == ["no slot", "", "", "no slot", "2nd of 3"]


def test_the_cluster_is_not_asked_for_a_job_that_ends_soon_nor_at_each_look() -> None:
    asked: list[int] = []

    def reason() -> str:
        asked.append(1)
        return str(len(asked))

    lines = WaitingLines(reason, 0.0)
    assert lines.take(FIRST_SECONDS - 0.1) == ""
    assert asked == []
    assert lines.take(FIRST_SECONDS) == "1"
    assert lines.take(FIRST_SECONDS + INTERVAL_SECONDS - 0.1) == ""
    assert asked == [1]

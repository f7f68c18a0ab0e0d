"""When the heap of an idle JVM shrinks."""

from __future__ import annotations

import pytest

from runtime.taskexecutor.spark_host.idleness import PATIENCE, Idleness

BEGIN = 100.0


@pytest.mark.parametrize(
    ("looks", "due"),
    [
        ([(1, False), (PATIENCE - 1, False)], []),
        ([(1, False), (PATIENCE, False), (PATIENCE + 1, False), (5 * PATIENCE, False)], [PATIENCE]),
        ([(PATIENCE, True), (PATIENCE + 1, False), (2 * PATIENCE - 1, False)], []),
        ([(PATIENCE, True), (2 * PATIENCE, False), (9 * PATIENCE, False)], [2 * PATIENCE]),
        ([(PATIENCE, False), (2 * PATIENCE, True), (3 * PATIENCE, False), (4 * PATIENCE, False)], [20, 60]),
    ],
    ids=["not yet", "once", "a use puts it off", "after a use", "again after the next use"],
)
def test_it_is_due_once_for_each_time_of_use(looks: list[tuple[float, bool]], due: list[float]) -> None:
    idleness = Idleness(BEGIN)
    assert [now for now, is_used in looks if idleness.is_due(BEGIN + now, is_used=is_used)] == due

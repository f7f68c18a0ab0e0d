"""What is told of a leader that does not take this TaskManager: expected of one that has just been elected."""

from __future__ import annotations

import logging

import pytest

from runtime.common.errors import FlinklikeError, StaleTokenError, UnavailableError
from runtime.taskexecutor.connections.resource_manager_connection import LEADER_BEGINS_SECONDS, failure_level


@pytest.mark.parametrize(
    ("error", "seconds", "level"),
    [
        (UnavailableError("streams of kind X are not accepted here (now)"), 0.0, logging.INFO),
        (UnavailableError("streams of kind X are not accepted here (now)"), LEADER_BEGINS_SECONDS, logging.WARNING),
        (StaleTokenError("an older term"), 0.0, logging.WARNING),
    ],
)
def test_what_is_expected_of_a_new_leader_is_no_warning(error: FlinklikeError, seconds: float, level: int) -> None:
    assert failure_level(error, seconds) == level

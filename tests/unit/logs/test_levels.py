"""Levels of our own loggers, changed while the process runs."""

from __future__ import annotations

import logging

import pytest

from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.logs.levels import set_level

NAME = "runtime.logs.levels"


def test_a_level_holds_below_a_logger_until_it_is_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    below = logging.getLogger(NAME)
    before = below.getEffectiveLevel()
    try:
        assert set_level("runtime.logs", "DEBUG") == "DEFAULT"
        assert set_level("runtime.logs", "DEBUG") == "DEBUG"
        assert below.isEnabledFor(logging.DEBUG)
        assert set_level("runtime.logs", "ERROR") == "DEBUG"
        assert not below.isEnabledFor(logging.WARNING)
    finally:
        assert set_level("runtime.logs", "DEFAULT") == "ERROR"
    assert below.getEffectiveLevel() == before
    told = [record.getMessage().removesuffix(", until this process ends") for record in caplog.records]
    assert told == [
        "log level of runtime.logs: DEBUG in place of DEFAULT",
        "log level of runtime.logs: ERROR in place of DEBUG",
        "log level of runtime.logs: DEFAULT in place of ERROR",
    ]


@pytest.mark.parametrize("name", ["runtime.typo", "runtime.", "runtime..logs", "jobmaster_process.x" * 5])
def test_a_logger_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(NotFoundError, match="no logger"):
        set_level(name, "DEBUG")
    assert name not in logging.Logger.manager.loggerDict


@pytest.mark.parametrize(
    ("name", "level", "says"),
    [
        ("root", "DEBUG", "logger: 'root' is none of runtime or jobmaster_process"),
        ("", "DEBUG", "logger"),
        ("hpack", "DEBUG", "logger"),
        ("runtimes", "DEBUG", "logger"),
        (f"runtime.{'x' * 300}", "DEBUG", "logger"),
        (NAME, "TRACE", "level: 'TRACE' is none of DEBUG, INFO, WARNING, ERROR, DEFAULT"),
        (NAME, "debug", "level"),
        (NAME, "10", "level"),
        (NAME, "", "level"),
    ],
)
def test_libraries_and_other_words_are_refused(name: str, level: str, says: str) -> None:
    """What libraries log at DEBUG has heads of requests, with tokens in them."""
    with pytest.raises(InvalidInputError, match=says):
        set_level(name, level)

"""From options to what a driver is told: bounds that follow from others, and options without an effect (R65)."""

from __future__ import annotations

import pytest

from runtime.common.errors import InvalidInputError
from runtime.config.configuration import Configuration
from runtime.config.loading import load
from runtime.entrypoint.job_manager_options import worker_settings
from runtime.entrypoint.process_options import cores

DRIVER = "resourcemanager.driver=process"


def loaded(*dynamic: str) -> Configuration:
    return load(None, environment={}, dynamic=dynamic)


def test_without_a_driver_there_are_none() -> None:
    assert worker_settings(loaded()) is None


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ((), 2 * cores()),
        (("taskmanager.numberOfTaskSlots=1000",), 1000),
        (("slotmanager.number-of-slots.min=1000",), 1000),
        (("taskmanager.numberOfTaskSlots=4", "slotmanager.number-of-slots.max=7"), 7),
    ],
)
def test_the_maximum_is_that_of_the_host_where_none_is_set(options: tuple[str, ...], most: int) -> None:
    settings = worker_settings(loaded(DRIVER, *options))
    assert settings is not None
    assert settings.slots_max == most


def test_a_maximum_below_one_task_manager_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"is less than one TaskManager's 4 slots"):
        worker_settings(loaded(DRIVER, "taskmanager.numberOfTaskSlots=4", "slotmanager.number-of-slots.max=3"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("slotmanager.number-of-slots.max=4",), "has no effect with resourcemanager.driver: standalone"),
        (("resourcemanager.taskmanager-timeout=1 min",), "has no effect with resourcemanager.driver: standalone"),
        ((DRIVER, "slotmanager.number-of-slots.min=5", "slotmanager.number-of-slots.max=4"), "is above"),
        (("resourcemanager.driver=yarn",), "process"),
    ],
)
def test_what_contradicts_itself_is_refused(options: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        loaded(*options)

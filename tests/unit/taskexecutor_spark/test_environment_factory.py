"""R50, R53: which user an environment has that is started on demand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from runtime.common.errors import UnavailableError
from runtime.common.spark_environments import EnvironmentSpec
from runtime.taskexecutor.spark.account import SparkAccount
from runtime.taskexecutor.spark.application import ApplicationEnvironment
from runtime.taskexecutor.spark.environment import SparkEnvironment
from runtime.taskexecutor.spark.environment_factory import SparkEnvironmentFactory
from runtime.taskexecutor.spark_protocol.settings import SparkSettings
from tests.kit.spark.spark_box import spark_settings

ONE, OTHER = (SparkAccount(name, uid, uid, (), 0o002) for name, uid in (("one", 5), ("other", 6)))


class Made:
    def __init__(self, settings: SparkSettings, account: SparkAccount | None) -> None:
        self.settings, self.account = settings, account


def make(settings: SparkSettings, account: SparkAccount | None) -> SparkEnvironment:
    return cast("SparkEnvironment", Made(settings, account))


def test_no_two_have_one_account_and_the_dead_leave_theirs(tmp_path: Path) -> None:
    factory = SparkEnvironmentFactory(spark_settings(tmp_path), make, [ONE, OTHER])
    first, second = (cast("Any", factory.make(EnvironmentSpec(key, {}, 1 << 30))) for key in ("a" * 16, "b" * 16))
    assert (first.account, second.account) == (ONE, OTHER)
    assert first.settings.work_directory != second.settings.work_directory
    assert first.settings.work_directory.parent == spark_settings(tmp_path).work_directory.parent
    with pytest.raises(UnavailableError, match="every account of"):
        factory.make(EnvironmentSpec("c" * 16))
    for _ in range(2):
        factory.forget(first)
    third = cast("Any", factory.make(EnvironmentSpec("c" * 16)))
    assert third.account is ONE
    with pytest.raises(UnavailableError, match="every account of"):
        factory.make(EnvironmentSpec("d" * 16))


def test_without_users_of_slots_there_are_as_many_as_have_room(tmp_path: Path) -> None:
    factory = SparkEnvironmentFactory(spark_settings(tmp_path), make, None)
    made = [cast("Any", factory.make(EnvironmentSpec(key * 16))) for key in "abc"]
    assert [one.account for one in made] == [None] * 3
    for one in made:
        factory.forget(one)
    assert isinstance(factory.make(EnvironmentSpec("d" * 16, is_application=True)), ApplicationEnvironment)

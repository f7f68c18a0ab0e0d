"""Makes the Spark environments that a TaskManager starts on demand, and says whose user each is (R50, R53)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.common.errors import UnavailableError
from runtime.common.spark_environments import EnvironmentSpec
from runtime.taskexecutor.spark.account import SparkAccount
from runtime.taskexecutor.spark.application import ApplicationEnvironment
from runtime.taskexecutor.spark.environment import SparkEnvironment
from runtime.taskexecutor.spark_protocol.settings import SparkSettings

MakeProcess = Callable[[SparkSettings, SparkAccount | None], SparkEnvironment]
"""Makes an environment with a host and a JVM of its own, of that user."""


class SparkEnvironmentFactory:
    """Environments beside one with `settings`. Where `accounts` is not None, each has one of them to itself, from its
    making until its processes are dead: the end of an environment is the end of all that its user runs.
    """

    def __init__(self, settings: SparkSettings, make: MakeProcess, accounts: Sequence[SparkAccount] | None) -> None:
        self._settings = settings
        self._make = make
        self._free = None if accounts is None else [*accounts]
        self._taken: dict[SparkEnvironment, SparkAccount] = {}

    def make(self, spec: EnvironmentSpec) -> SparkEnvironment:
        """One that is not started yet. Raises InvalidInputError for conf that cannot be used."""
        if spec.is_application:
            return ApplicationEnvironment(self._settings.of_application(spec))
        settings = self._settings.of_environment(spec)
        if self._free is None:
            return self._make(settings, None)
        if not self._free:
            message = "every account of taskmanager.spark.user has a JVM already"
            raise UnavailableError(message)
        made = self._make(settings, self._free[0])
        self._taken[made] = self._free.pop(0)
        return made

    def forget(self, environment: SparkEnvironment) -> None:
        """Its processes are dead: another one can have its account. Idempotent."""
        account = self._taken.pop(environment, None)
        if account is not None and self._free is not None:
            self._free.append(account)

"""The TaskManager that can read the log of an attempt, and what the answer says where there is none."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.executiongraph.archived import ArchivedExecution
from runtime.gateways.resource_manager import TaskManagerInfo


class LogPlaces:
    """The TaskManagers that are registered now. Of two with one name the latest is alive."""

    def __init__(self, managers: Iterable[TaskManagerInfo]) -> None:
        registered = [one.registration for one in managers]
        self._addresses = {one.task_manager_id: one.address for one in registered}
        self._of_host = {_host(one.address): one.address for one in registered}

    def address(self, attempt: ArchivedExecution) -> str | None:
        """The TaskManager that ran it, else one of its host, which finds the log beside its own (D-058)."""
        return self._addresses.get(attempt.task_manager_id) or self._of_host.get(_host(attempt.endpoint))


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def gone(attempt: ArchivedExecution, *, is_history: bool = False) -> str:
    """No registered TaskManager can read it; a history server asks none."""
    where = (
        f"on host {_host(attempt.endpoint)} in log/attempts/{attempt.task_manager_id}/{attempt.attempt_id} of the run "
        "directory, as long as logs are kept"
    )
    if is_history:
        return f"a history has no logs. TaskManager {attempt.task_manager_id} has written it {where}"
    return (
        f"TaskManager {attempt.task_manager_id} is not registered. It is {where}, and is shown again when "
        "bin/taskmanager.sh has started a TaskManager there"
    )


def deleted(attempt: ArchivedExecution) -> str:
    """The TaskManager that would have the log says that it does not."""
    return f"TaskManager {attempt.task_manager_id} does not have it any more"

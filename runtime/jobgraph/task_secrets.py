"""The secrets of the task that runs in this process: `ctx.secrets`, and `task_secrets()` for scripts without a ctx."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.jobgraph.named_values import NamedValues


class TaskSecrets(NamedValues):
    """Values by name. `repr` shows the names only."""

    def _missing(self, name: str) -> str:
        return f"the job does not ask for the secret {name!r}: name it in secrets=[...] of the job"

    def __repr__(self) -> str:
        return f"TaskSecrets({', '.join(self._values)})"


class _Running:
    secrets = TaskSecrets({})


def task_secrets() -> Mapping[str, str]:
    """The secrets that the running job asks for. Empty outside of a task."""
    return _Running.secrets


def enter_task(secrets: Mapping[str, str]) -> Mapping[str, str]:
    """From now on a task with these secrets runs in this process."""
    _Running.secrets = TaskSecrets(secrets)
    return _Running.secrets

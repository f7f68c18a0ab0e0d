"""The secrets of the task that runs in this process: `ctx.secrets`, and `task_secrets()` for scripts without a ctx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class TaskSecrets(Mapping[str, str]):
    """Values by name. Whoever prints it sees the names only."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        try:
            return self._values[name]
        except KeyError:
            message = f"the job does not ask for the secret {name!r}: name it in secrets=[...] of the job"
            raise KeyError(message) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

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

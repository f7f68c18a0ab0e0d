"""Delegation tokens for storage: fsspec opens file systems with their values `fsspec.<protocol>.<argument>` (R51).

Exchange, outputs and jobs open a file system by its URL alone. fsspec has a place for arguments of each protocol; a
mapping there reads the newest tokens each time. A file system that is open keeps the tokens with which it was opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import fsspec.config

from runtime.taskexecutor.credentials.token_values import TokenValues

_PREFIX = "fsspec."


class StorageCredentials:
    """The credentials of one process: a TaskManager, or a slot."""

    def __init__(self, values: TokenValues) -> None:
        self._values = values

    @classmethod
    def of_directory(cls, directory: Path) -> StorageCredentials:
        """The credentials of the TaskManager, which keeps tokens in that directory."""
        return cls(TokenValues(directory, _PREFIX))

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> StorageCredentials:
        """The credentials of a slot process."""
        return cls(TokenValues.of_environment(environment, _PREFIX))

    def install(self) -> None:
        """Register the protocols for which there are tokens by now. Idempotent, and cheap."""
        for protocol in {name.partition(".")[0] for name in self._values.newest()}:
            before: Any = fsspec.config.conf.get(protocol, {})
            if not isinstance(before, _Newest):
                fsspec.config.conf[protocol] = _Newest(self._values, f"{protocol}.", before)

    def forget_opened(self) -> None:
        """Let go of file systems that were opened with earlier tokens, which fsspec keeps for ever. Code that uses one
        keeps it.
        """
        for protocol in {name.partition(".")[0] for name in self._values.newest()}:
            opened: Any = fsspec.registry.get(protocol)
            if opened is not None:
                opened.clear_instance_cache()


class _Newest(Mapping[str, Any]):
    """The newest arguments of one protocol, read each time; they win over configured ones."""

    def __init__(self, values: TokenValues, prefix: str, before: Mapping[str, Any]) -> None:
        self._values = values
        self._prefix = prefix
        self._before = before

    def _now(self) -> Mapping[str, Any]:
        newest = self._values.newest()
        own = {
            name.removeprefix(self._prefix): value for name, value in newest.items() if name.startswith(self._prefix)
        }
        return {**self._before, **own}

    def __getitem__(self, name: str) -> Any:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

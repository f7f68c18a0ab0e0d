"""Delegation tokens that are for Hadoop or fsspec: values that are called `hadoop_conf.<key>`, `fsspec.<what>` (R51).

Each process that uses them reads the files that tasks read: a renewal replaces a file, and sends no message.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from runtime.jobgraph.task_credentials import VARIABLE

logger = logging.getLogger(__name__)

_State = tuple[tuple[str, int, int], ...]


class TokenValues:
    """The values in one directory (None: there are none) whose names begin with `prefix`. Any thread may ask."""

    def __init__(self, directory: Path | None, prefix: str) -> None:
        self._directory = directory
        self._prefix = prefix
        self._lock = threading.Lock()
        self._state: _State = ()
        self._newest: Mapping[str, str] = {}

    @classmethod
    def of_environment(cls, environment: Mapping[str, str], prefix: str) -> TokenValues:
        """The values of a task, from the directory that its environment names."""
        named = environment.get(VARIABLE)
        return cls(Path(named) if named else None, prefix)

    def newest(self) -> Mapping[str, str]:
        """The values by name without the prefix; the same object until they change. After a failed read the last values
        stay.
        """
        if self._directory is None:
            return self._newest
        with self._lock:
            try:
                state = self._look(self._directory)
                if state != self._state:
                    found = self._read(self._directory, state)
                    self._state = state
                    self._newest = found if found != self._newest else self._newest
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                # Not the error's text: it may quote what it could not read.
                logger.warning("credentials cannot be read (%s), those of before stay", type(error).__name__)
            return self._newest

    @staticmethod
    def _look(directory: Path) -> _State:
        try:
            with os.scandir(directory) as entries:
                found = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith(".json")]
        except FileNotFoundError:
            return ()  # there are no providers; each attempt of a slot comes here
        return tuple(sorted((name, state.st_ino, state.st_mtime_ns) for name, state in found))

    def _read(self, directory: Path, state: _State) -> Mapping[str, str]:
        """Read all files. When two providers have the same key, the one with the later name wins."""
        values: dict[str, str] = {}
        for name, _, _ in state:
            content = json.loads((directory / name).read_bytes())
            values |= {
                key.removeprefix(self._prefix): str(value)
                for key, value in content["values"].items()
                if key.startswith(self._prefix)
            }
        return values

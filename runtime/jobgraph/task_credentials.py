"""The short-lived credentials that a task may use: `ctx.credentials(name)`, and `task_credentials(name)` for scripts.

They are files, `<name>.json`, in the directory that VARIABLE names; a renewal replaces a whole file (R51).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from runtime.jobgraph.named_values import NamedValues

VARIABLE = "FLINKLIKE_CREDENTIALS_DIRECTORY"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
_SUFFIX = ".json"


class Credentials(NamedValues):
    """Values by name, as they were when they were asked for. `repr` shows the names only.

    `expires_at`: until when they are good; None: they do not end.
    """

    def __init__(self, name: str, values: Mapping[str, str], expires_at: datetime | None) -> None:
        super().__init__(values)
        self._name = name
        self.expires_at = expires_at

    def _missing(self, name: str) -> str:
        return f"the credentials {self._name!r} have no {name!r}: they have {', '.join(sorted(self._values))}"

    def __repr__(self) -> str:
        return f"Credentials({self._name}: {', '.join(self._values)})"


def credentials_file(directory: Path, name: str) -> Path:
    """Where those of `name` are. Raises KeyError for what is no name."""
    if not _NAME.match(name):
        message = f"{name[:80]!r} is no name of credentials: small letters, digits, '-' and '_'"
        raise KeyError(message)
    return directory / f"{name}{_SUFFIX}"


def task_credentials(name: str) -> Credentials:
    """The newest that the cluster's provider `name` has obtained: ask each time, and keep none for longer than a use.

    Raises KeyError when there are none.
    """
    directory = Path(os.environ.get(VARIABLE, ""))
    path = credentials_file(directory, name)
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        there = sorted(one.stem for one in directory.glob(f"*{_SUFFIX}")) if os.environ.get(VARIABLE) else []
        message = (
            f"there are no credentials {name!r} here, only {', '.join(there) or 'none at all'}: the cluster obtains "
            f"them by security.delegation.token.provider.{name}.*, and its REST /overview says what it has"
        )
        raise KeyError(message) from None
    end = content.get("expires_at")
    return Credentials(name, content["values"], None if end is None else datetime.fromtimestamp(end, UTC))

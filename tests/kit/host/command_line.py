"""How a command of the command line ended, and the type of the fixture that runs one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """Exit code, stdout, stderr."""

    code: int
    out: str
    err: str


RunCommand = Callable[..., Done]

"""What the attempts of simulated jobs do."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.gateways.task import OVERWRITE


@dataclass(frozen=True, slots=True)
class UserCode:
    """What the attempts of one vertex do. `is_short_of_input`: its very first one cannot read one of its partitions.

    `is_restarted`: its job asks for restarts of code that fails.
    `leaves_daemon`: it starts a program that goes on when its own process has ended, until somebody ends it (R29).
    `files`: so many are written by `ctx.output_path()` in that mode.
    `is_slower_there`: it takes longer on a host that is slow.
    `batches`: of a streaming query: so many are there to read; 0: it does not end.
    """

    seconds_low: float = 0.0
    seconds_high: float = 0.0
    fails: bool = False
    is_restarted: bool = False
    is_short_of_input: bool = False
    leaves_daemon: bool = False
    files: int = 0
    mode: str = OVERWRITE
    batches: int = 0
    is_slower_there: bool = False

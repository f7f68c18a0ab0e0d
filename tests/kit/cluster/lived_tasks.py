"""Tasks that write down when they live, in a file that the cluster does not know, and the reader of that file.

Slots import this for `live` alone. Each attempt is one life; the monotonic clock is that of the host. A life goes on
until the gate of its task, or its own, opens.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def live(ctx: Any) -> int:
    """Note `begins`, `lives` again and again, and `ends` or `cancelled`. The task's value is its process."""
    folder, name, pid = Path(ctx.params["folder"]), ctx.vertex_name, os.getpid()
    with (folder / "ledger").open("ab", buffering=0) as ledger:

        def note(what: str) -> None:
            _ = ledger.write(f"{time.monotonic()!r} {name} {pid} {what}\n".encode())

        note("begins")
        while not (folder / name).exists() and not (folder / f"{name}.{pid}").exists():
            time.sleep(0.02)
            if ctx.cancelled:
                note("cancelled")
                return pid
            note("lives")
        note("ends")
    return pid


@dataclass
class Life:
    """What one attempt has noted."""

    pid: int
    begins: float
    last: float
    notes: set[str] = field(default_factory=set)


def lives(folder: Path, name: str) -> list[Life]:
    """Those of one task, oldest first."""
    found: dict[int, Life] = {}
    whole, _, _ = (folder / "ledger").read_text().rpartition("\n")  # a line may be there by half
    for line in whole.splitlines():
        at, who, pid, what = line.split()
        if who == name:
            life = found.setdefault(int(pid), Life(int(pid), float(at), float(at)))
            life.last = float(at)
            life.notes.add(what)
    return list(found.values())

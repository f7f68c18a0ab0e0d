"""The last line of the output of a process that has ended: it says why."""

from __future__ import annotations

from pathlib import Path

from runtime.common.printable import printable

_TAIL = 16_384
_LINE_MAX = 500


def last_line(path: Path) -> str:
    """The last line with anything in it, "" without one; where the file is when it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return f"see {path}"
    return printable(lines[-1])[:_LINE_MAX] if lines else ""

"""Durations in words."""

from __future__ import annotations

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def duration_words(seconds: float) -> str:
    """The shortest form: `250 ms`, `1 s`, `1 min 30 s`, `2 h`."""
    if seconds < 1:
        return f"{seconds * 1000:g} ms" if seconds else "0 s"
    if seconds != int(seconds):
        return f"{seconds:g} s"
    rest, words = int(seconds), []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {unit}")
    if rest:
        words.append(f"{rest} s")
    return " ".join(words)

"""The text of `jstack`, thread by thread. It comes from a process in which jobs run, so that it may be any text."""

from __future__ import annotations

from collections.abc import Iterator

TEXT_MAX = 512 << 10
_NAME_MAX = 200


def threads_of(dump: str) -> Iterator[tuple[str, str]]:
    """(name, text) of each thread; the name is "" for what is about no thread."""
    for block in filter(None, (part.strip("\n") for part in dump[:TEXT_MAX].split("\n\n"))):
        name = block[1:].partition('" ')[0] if block.startswith('"') else ""
        yield name.partition("\n")[0][:_NAME_MAX], f"{block}\n"

"""From the text that `faulthandler` writes to stacks that can be counted; it may be any text of users (R48). Pure."""

from __future__ import annotations

import re
from collections import Counter

from runtime.common.printable import printable
from runtime.gateways.task_executor import FRAME_LENGTH_MAX, FRAMES_MAX, STACKS_MAX, SampledStack

_FRAME = re.compile(r'\s+File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)')
_OWN = "/runtime/taskexecutor/"
"""Frames of ours below user code: they are the same in every stack."""
_MAIN = "Current thread"
"""The kernel has the main thread take the signal, unless it blocks it."""


def stacks_in(dump: str, *, is_main_on_cpu: bool) -> list[tuple[tuple[str, ...], bool]]:
    """(frames from the outermost on, was it on a CPU) of each thread of a dump."""
    found: list[tuple[tuple[str, ...], bool]] = []
    frames: list[str] = []
    is_main = False
    for line in [*dump.splitlines(), ""]:
        match = _FRAME.match(line)
        if match is not None:
            frames.append(_shown(match))
            continue
        if frames:
            found.append((_outermost_first(frames), is_main and is_main_on_cpu))
            frames = []
        is_main = line.startswith(_MAIN)
    return [one for one in found if one[0]]


def _shown(match: re.Match[str]) -> str:
    text = f"{match['function']} ({match['file']}:{match['line']})"
    text = printable(text)
    return text if len(text) <= FRAME_LENGTH_MAX else f"{text[: FRAME_LENGTH_MAX - 1]}…"


def _outermost_first(frames: list[str]) -> tuple[str, ...]:
    """Without our frames below user code; all of them where there is nothing else."""
    outward = frames[::-1]
    begin = next((at for at, one in enumerate(outward) if _OWN in one), 0)
    first = next((at for at, one in enumerate(outward) if at >= begin and _OWN not in one), 0)
    return tuple(outward[first:][:FRAMES_MAX])


def counted(seen: Counter[tuple[tuple[str, ...], bool]]) -> tuple[SampledStack, ...]:
    """Those that were seen most often."""
    return tuple(SampledStack(frames, count, is_on_cpu) for (frames, is_on_cpu), count in seen.most_common(STACKS_MAX))

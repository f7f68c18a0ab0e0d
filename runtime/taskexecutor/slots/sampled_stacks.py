"""From the text that `faulthandler` writes to stacks that can be counted; it may be any text of users (R48). Pure."""

from __future__ import annotations

import re
from collections import Counter

from runtime.common.printable import printable
from runtime.gateways.task_executor import CLUSTER_FRAME, FRAME_LENGTH_MAX, FRAMES_MAX, STACKS_MAX, SampledStack

_FRAME = re.compile(r'\s+File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)')
_FUNCTION_LENGTH_MAX = 80
_OWN = "/runtime/taskexecutor/"
"""Frames of ours below user code: they are the same in every stack."""
_BEGINS_THREADS = ("/threading.py:", "/concurrent/futures/thread.py:")
_OF_CLUSTER = (_OWN, "/py4j/", "/pyspark/")
"""Where threads begin that the cluster, or the gateway to the JVM, has started."""
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
            shown = _outermost_first(frames) if is_main else _of_thread(frames)
            found.append((shown, is_main and is_main_on_cpu))
            frames = []
        is_main = line.startswith(_MAIN)
    return [one for one in found if one[0]]


def _shown(match: re.Match[str]) -> str:
    """`function (file:line)`; of what is too long the function's end and the path's beginning are left out."""
    function, place = printable(match["function"]), printable(f"{match['file']}:{match['line']}")
    if len(function) > _FUNCTION_LENGTH_MAX:
        function = f"{function[: _FUNCTION_LENGTH_MAX - 1]}…"
    room = FRAME_LENGTH_MAX - len(function) - 3
    return f"{function} ({place if len(place) <= room else f'…{place[1 - room :]}'})"


def _of_thread(frames: list[str]) -> tuple[str, ...]:
    """Those that the cluster has started are below one frame, so that a page can fold them."""
    outward = frames[::-1]
    begin = next((one for one in outward if not any(part in one for part in _BEGINS_THREADS)), outward[-1])
    if any(part in begin for part in _OF_CLUSTER):
        return (CLUSTER_FRAME, *outward)[:FRAMES_MAX]
    return _outermost_first(frames)


def _outermost_first(frames: list[str]) -> tuple[str, ...]:
    """Without our frames below user code; all of them where there is nothing else."""
    outward = frames[::-1]
    begin = next((at for at, one in enumerate(outward) if _OWN in one), 0)
    first = next((at for at, one in enumerate(outward) if at >= begin and _OWN not in one), 0)
    return tuple(outward[first:][:FRAMES_MAX])


def counted(seen: Counter[tuple[tuple[str, ...], bool]]) -> tuple[SampledStack, ...]:
    """Those that were seen most often."""
    return tuple(SampledStack(frames, count, is_on_cpu) for (frames, is_on_cpu), count in seen.most_common(STACKS_MAX))

"""One campaign on one surface, in a process of its own, and what it has shown.

The process is bounded by the kernel (CPU time, address space), so that what neither Python nor its parsers interrupt is
found too: the input that it was fed last lies in shared memory.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import re
import resource
import signal
import sys
import time
import traceback
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.mutation import SIZE_MAX, Mutator
from tests.fuzz.surface import MIB, Surface

_ADDRESS_SPACE = 1024 * MIB
"""What the process may take beyond what it has at its beginning."""
_SPARE_CPU_SECONDS = 300
_FINDINGS_MAX = 20
_CORPUS_MAX = 500
_WAYS_MAX = 20_000
_ROOM = 2 * SIZE_MAX


class HangError(BaseException):
    """An input has taken its CPU time. No `except Exception` takes it."""


@dataclass
class Finding:
    """`kind`: crash, hang or memory. `where`: what was raised, and the last lines of ours below it."""

    kind: str
    where: str
    data: bytes = b""
    file: str = ""


@dataclass
class Figures:
    """What a campaign has shown. `ways`: in how many its inputs ended: answers, and errors from different lines."""

    surface: str
    inputs: int = 0
    ways: int = 0
    cpu_seconds: float = 0.0
    longest_cpu_seconds: float = 0.0
    peak_bytes: int = 0
    growth_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    def count(self, kind: str) -> int:
        """Findings of that kind."""
        return sum(one.kind == kind for one in self.findings)

    def to_json(self) -> str:
        """One line; inputs are named by their files."""
        fields = asdict(self)
        for one in fields["findings"]:
            del one["data"]
        return json.dumps(fields)


def run(surface: Surface, *, seed: int, inputs: int = 0, cpu_seconds: float = 0.0, kept: Path) -> Figures:
    """Feed what is kept, then `inputs` mutated ones, or as many as fit into `cpu_seconds`. Findings go to `kept`."""
    shared = mmap.mmap(-1, _ROOM)
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            _limit(cpu_seconds)
            figures = _Campaign(surface, shared, seed).run(inputs, cpu_seconds)
            with os.fdopen(write, "wb") as told:
                told.write(_packed(figures))
            code = 0
        except BaseException:  # noqa: BLE001 - of a fork nothing may go on in the caller
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as told:
        packed = told.read()
    _, status = os.waitpid(pid, 0)
    figures = _unpacked(packed) if packed else _died(surface, status, shared)
    for number, one in enumerate(figures.findings):
        kept.mkdir(parents=True, exist_ok=True)
        path = kept / f"{surface.name}-{one.kind}-{seed}-{number}"
        path.write_bytes(one.data)
        one.file = str(path)
    return figures


def _limit(cpu_seconds: float) -> None:
    space = _status("VmSize") + _ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    seconds = int(cpu_seconds) + _SPARE_CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()


def _died(surface: Surface, status: int, shared: mmap.mmap) -> Figures:
    code = os.waitstatus_to_exitcode(status)
    size = int.from_bytes(shared[:4], "big")
    kind = "hang" if code in {-signal.SIGXCPU, -signal.SIGKILL} else "crash"
    return Figures(surface.name, findings=[Finding(kind, f"the process ended with {code}", shared[4 : 4 + size])])


class _Campaign:
    def __init__(self, surface: Surface, shared: mmap.mmap, seed: int) -> None:
        self._surface = surface
        self._shared = shared
        self._mutator = Mutator(seed, surface.tokens, prefix=surface.prefix)
        self._figures = Figures(surface.name)
        self._ways: set[str] = set()
        self._told: set[str] = set()

    def run(self, inputs: int, cpu_seconds: float) -> Figures:
        signal.signal(signal.SIGPROF, _hang)
        feed = self._surface.begin()
        tracemalloc.start(1)  # once: each start keeps some memory of its own
        corpus = self._surface.corpus()
        for data in corpus:
            self._feed(feed, data)
        grown = _status("VmRSS")
        figures, begun, first = self._figures, time.process_time(), self._figures.inputs
        while len(figures.findings) < _FINDINGS_MAX and (
            figures.inputs - first < inputs or time.process_time() - begun < cpu_seconds
        ):
            data = self._mutator.of(corpus)
            if self._feed(feed, data) and len(corpus) < _CORPUS_MAX:
                corpus.append(data)
        figures.ways = len(self._ways)
        figures.cpu_seconds = time.process_time() - begun
        figures.growth_bytes = max(0, _status("VmRSS") - grown - sum(map(len, corpus)))
        if figures.growth_bytes > self._surface.growth_bytes:
            figures.findings.append(Finding("memory", f"the process has grown by {figures.growth_bytes} bytes"))
        return figures

    def _feed(self, feed: Callable[[bytes], object], data: bytes) -> bool:
        """True when it ended in a way that is new. What took too long has to do so twice: a machine may halt once."""
        self._shared[: 4 + len(data)] = len(data).to_bytes(4, "big") + data
        self._figures.inputs += 1
        way, kind = self._once(feed, data)
        if kind == "hang":
            way, kind = self._once(feed, data)
        if kind and way not in self._told:
            self._told.add(way)
            self._figures.findings.append(Finding(kind, way, data))
        is_new = way not in self._ways
        if len(self._ways) < _WAYS_MAX:
            self._ways.add(way)
        return is_new

    def _once(self, feed: Callable[[bytes], object], data: bytes) -> tuple[str, str]:
        """The way in which it ended, and the kind of the finding that it is, if any."""
        surface, figures = self._surface, self._figures
        way, kind = "accepted", ""
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, surface.cpu_seconds)
        try:
            answer = feed(data)
            way = f"accepted: {answer[:60]}" if isinstance(answer, str) else way
        except surface.promised as error:
            way = f"{_way(error)}: {_VARIABLE.sub('', str(error))[:60]}"
        except HangError as error:
            way, kind = _way(error), "hang"
        except MemoryError as error:
            way, kind = _way(error), "memory"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
            way, kind = _way(error), "crash"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            took = time.process_time() - begun
            peak = tracemalloc.get_traced_memory()[1] - before
        figures.longest_cpu_seconds = max(figures.longest_cpu_seconds, took)
        figures.peak_bytes = max(figures.peak_bytes, peak)
        if not kind and took > surface.cpu_seconds:
            return f"{took:.1f} s, then {way}", "hang"
        if not kind and peak > surface.peak_bytes:
            return f"{peak >> 20} MiB, then {way}", "memory"
        return way, kind


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise HangError


_VARIABLE = re.compile(r"[0-9]+|'[^']*'|\"[^\"]*\"")


def _way(error: BaseException) -> str:
    """Where it came from: the lines, without what was read."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    places = [f"{Path(one.filename).name}:{one.lineno}" for one in frames]
    cause = f" of {type(error.__cause__).__name__}" if error.__cause__ is not None else ""
    return f"{type(error).__name__}{cause} at {' '.join(places[:3])} ... {' '.join(places[-3:])}"


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _packed(figures: Figures) -> bytes:
    fields: dict[str, Any] = asdict(figures)
    for one in fields["findings"]:
        one["data"] = one["data"].hex()
    return json.dumps(fields).encode()


def _unpacked(packed: bytes) -> Figures:
    fields = json.loads(packed)
    findings = [Finding(**{**one, "data": bytes.fromhex(one["data"])}) for one in fields.pop("findings")]
    return Figures(**fields, findings=findings)

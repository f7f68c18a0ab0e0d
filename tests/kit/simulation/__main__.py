"""Run seeds: `python -m tests.kit.simulation --seeds N --from S`. Exit code 1 when one fails."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.highavailability.keys import Keys
from tests.kit.simulation.faults import SURVIVABLE, FaultKind
from tests.kit.simulation.processes import CURRENT
from tests.kit.simulation.seeds import Verdict, run_seed, silence
from tests.kit.simulation.story import story

STORY_LINES = 60
"""Printed of a failing seed without --story."""

SEEDS_PER_PROCESS = 8
"""One after the other: what they leave in memory must not matter, and a fork for each costs an eighth of its time."""


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    options = _parser().parse_args(arguments)
    kinds = _kinds(options.faults)
    if options.log:
        _show_logs()
    else:
        silence()
    _warm_up()
    failed: list[int] = []
    virtual, started = 0.0, time.perf_counter()
    seeds = [int(one) for one in options.only.split(",")] if options.only else None
    seeds = seeds or list(range(options.start, options.start + options.seeds))
    running: deque[_Child] = deque()
    waiting = deque(seeds)
    size = min(SEEDS_PER_PROCESS, -(-len(seeds) // options.jobs))
    while running or waiting:
        while waiting and len(running) < options.jobs:
            batch = [waiting.popleft() for _ in range(min(len(waiting), size))]
            running.append(_begin(batch, kinds, options))
        child = running.popleft()
        bad, seconds = _end(child)
        virtual += seconds
        failed += bad
        if len(failed) >= options.failures_max:
            waiting.clear()
    real = time.perf_counter() - started
    _say(f"{len(seeds)} seeds from {seeds[0]}: {len(failed)} failed {failed or ''}".rstrip())
    _say(f"{virtual:.0f} virtual seconds in {real:.1f} s: {virtual / real:.0f} times real time")
    return 1 if failed else 0


def _warm_up() -> None:
    """Everything that is made at first use (codecs, readers of records) is made before the seeds are forked off."""
    was_disabled = logging.root.manager.disable
    silence()
    _ = run_seed(0)
    logging.disable(was_disabled)
    gc.freeze()
    # Every few seeds have a process of their own, which ends before collecting anything is worth its while.
    gc.disable()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bin/simulate.sh", description="Run seeds of the simulated cluster.")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--from", dest="start", type=int, default=1, help="the first one")
    parser.add_argument("--only", default="", help="these seeds, with commas between")
    parser.add_argument(
        "--faults", default="", help="kinds with commas between, or 'all'; default: what must be survived"
    )
    parser.add_argument("--in-process", action="store_true", help="JobMasters inside the JobManager")
    parser.add_argument("--adaptive", action="store_true", help="of more jobs the cluster chooses the parallelism")
    parser.add_argument("--on-demand", action="store_true", help="more jobs take their splits on demand")
    parser.add_argument("--speculative", action="store_true", help="more jobs run slow tasks twice, one host is slow")
    parser.add_argument("--reactive", action="store_true", help="streaming jobs follow the slots that there are")
    parser.add_argument("--queues", action="store_true", help="jobs are in queues, with priorities")
    parser.add_argument("--driver", action="store_true", help="a driver starts TaskManagers")
    parser.add_argument("--story", action="store_true", help="print the whole story of every seed")
    parser.add_argument("--log", action="store_true", help="print what the processes log")
    parser.add_argument("--digest", action="store_true", help="print a digest of each history")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time")
    parser.add_argument("--failures-max", type=int, default=1, help="stop after so many failed seeds")
    return parser


def _kinds(text: str) -> frozenset[FaultKind]:
    if not text:
        return SURVIVABLE
    return frozenset(FaultKind) if text == "all" else frozenset(map(FaultKind, text.split(",")))


@dataclass(frozen=True)
class _Child:
    seeds: list[int]
    pid: int
    answer: int


def _begin(seeds: list[int], kinds: frozenset[FaultKind], options: argparse.Namespace) -> _Child:
    """A few seeds in a process of their own, which ends before it has collected anything."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            left = options.failures_max
            for seed in seeds:
                left -= not _live(seed, kinds, options, writing)
                if not left:
                    os.write(writing, b"enough\n")
                    break
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    os.close(writing)
    return _Child(seeds, child, reading)


def _live(seed: int, kinds: frozenset[FaultKind], options: argparse.Namespace, writing: int) -> bool:
    """One seed; whether it was good, and how long it was, goes to the parent."""
    try:
        names = ("in_process", "queues", "adaptive", "speculative", "on_demand", "reactive", "driver")
        verdict = run_seed(seed, kinds, **{name: getattr(options, name) for name in names})
        _tell(verdict, options)
    except Exception:  # noqa: BLE001 - the boundary of the child
        traceback.print_exc(file=sys.stdout)
        os.write(writing, f"{seed} failed 0\n".encode())
        return False
    what = "good" if verdict.is_good else "failed"
    os.write(writing, f"{seed} {what} {verdict.virtual_seconds}\n".encode())
    return verdict.is_good


def _end(child: _Child) -> tuple[list[int], float]:
    """The seeds that failed, and the virtual seconds of all that were lived."""
    with os.fdopen(child.answer) as answer:
        told = [line.split() for line in answer]
    os.waitpid(child.pid, 0)
    lived = {int(line[0]): (line[1], float(line[2])) for line in told if len(line) == 3}
    failed = [seed for seed, (what, _) in lived.items() if what == "failed"]
    if ["enough"] not in told:
        failed += [seed for seed in child.seeds if seed not in lived]  # it has died of them
    return failed, sum(seconds for _, seconds in lived.values())


def _tell(verdict: Verdict, options: argparse.Namespace) -> None:
    mark = "ok" if verdict.is_good else "FAILED"
    kinds = " ".join(kind.value for kind in verdict.kinds)
    speed = verdict.virtual_seconds / verdict.real_seconds
    digest = f" {verdict.history.digest()}" if options.digest else ""
    _say(f"seed {verdict.seed}: {mark}, {verdict.virtual_seconds:.0f} s at {speed:.0f}x ({kinds}){digest}")
    if verdict.is_good and not options.story:
        return
    lines = list(story(verdict.history, verdict.violations, Keys.of_cluster("default")))
    if options.story:
        _say("\n".join(lines))
    if verdict.is_good:
        return
    _say(f"  broken: {', '.join(sorted({violation.rule for violation in verdict.violations}))}")
    for violation in verdict.violations[:10]:
        _say(f"  [{violation.rule}] {violation.what}")
    if not options.story:
        at = next(index for index, line in enumerate(lines) if "!!!!!!!!!!" in line)
        _say("\n".join(lines[max(0, at - STORY_LINES) : at + 2]))
    faults = f" --faults {options.faults}" if options.faults else ""
    mode = " --in-process" if options.in_process else ""
    mode += " --queues" if options.queues else ""
    mode += " --adaptive" if options.adaptive else ""
    mode += " --on-demand" if options.on_demand else ""
    mode += " --speculative" if options.speculative else ""
    mode += " --driver" if options.driver else ""
    mode += " --reactive" if options.reactive else ""
    _say(f"replay: bin/simulate.sh --seeds 1 --from {verdict.seed}{faults}{mode} --story")


def _show_logs() -> None:
    def name(record: logging.LogRecord) -> bool:
        process = CURRENT.get()
        record.process_name = "-" if process is None else process.name
        return True

    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(name)
    handler.setFormatter(logging.Formatter("           %(process_name)-10s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    assert Path("tests").is_dir(), "run it from the root of the source tree"
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    # Without an orderly end of the interpreter, which would run what the dead of the warm-up have left.
    os._exit(exit_code)

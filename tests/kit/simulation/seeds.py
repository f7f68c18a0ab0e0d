"""One seed from its number to its verdict: a cluster, jobs, faults, healing, judges."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from runtime.aio.entropy import SeededEntropy
from runtime.common.exchange import ExchangeMode
from runtime.common.ids import JobId, VertexId
from runtime.gateways.task import APPEND, OVERWRITE
from runtime.jobgraph.graph import JobGraph, OperatorKind
from tests.kit.control_plane.job_graphs import diamond, edge, graph, lone, source, vertex
from tests.kit.simulation.adaptive_jobs import planned_adaptive_jobs
from tests.kit.simulation.checker import Violation
from tests.kit.simulation.checkers import ALWAYS, check
from tests.kit.simulation.clients import PlannedJob
from tests.kit.simulation.disposers import Disposer
from tests.kit.simulation.faults import SURVIVABLE, Fate, FaultKind
from tests.kit.simulation.history import History
from tests.kit.simulation.large_jobs import planned_large_jobs
from tests.kit.simulation.on_demand_jobs import planned_on_demand_jobs
from tests.kit.simulation.processes import CURRENT, SimulatedLoop
from tests.kit.simulation.queries import planned_streams, planned_upgrades
from tests.kit.simulation.reruns import NothingRunsTwice, UserFailuresStand
from tests.kit.simulation.speculative_jobs import planned_speculative_jobs
from tests.kit.simulation.split_queries import planned_rescaled_jobs
from tests.kit.simulation.user_code import UserCode
from tests.kit.simulation.world import RESTARTS, Shape, World, until

T = TypeVar("T")

QUIET_AFTER = 240.0
"""Virtual seconds after the healing in which every acknowledged job must have ended."""

CALM = 60.0
"""Virtual seconds after that in which what is left over is cleaned up, and nothing else happens any more."""

QUIET_AFTER_WITH_DRIVER = 400.0
"""The same where workers may hang that hold all slots, until they are killed."""

WORKERS_GO = 200.0
"""Virtual seconds after that in which workers without work have gone."""

_KEPT: list[SimulatedLoop | World] = []


@dataclass(frozen=True)
class Verdict:
    """What came of one seed."""

    seed: int
    kinds: tuple[FaultKind, ...]
    violations: tuple[Violation, ...]
    virtual_seconds: float
    real_seconds: float
    history: History

    @property
    def is_good(self) -> bool:
        """Nothing was found."""
        return not self.violations


def on_virtual_time(main: Callable[[SimulatedLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main` on a loop of its own. What is left of it stays in memory: its dead must not be collected."""
    loop = SimulatedLoop()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        _KEPT.append(loop)
        if was_enabled:
            gc.enable()


def keep(world: World) -> World:
    """Keep a world, and have its tasks end in silence when the interpreter does."""
    _KEPT.append(world)
    return world


def run_seed(
    seed: int,
    kinds: frozenset[FaultKind] = SURVIVABLE,
    *,
    in_process: bool = False,
    queues: bool = False,
    adaptive: bool = False,
    speculative: bool = False,
    on_demand: bool = False,
    driver: bool = False,
    reactive: bool = False,
) -> Verdict:
    """A seed decides everything: the same one gives the same history. `in_process`: without JobMaster processes.

    `queues`: jobs are in queues, with priorities (R64). `adaptive`: of more jobs the cluster chooses the parallelism
    (R66). `speculative`: more jobs have slow tasks run a second time, and one host is slow (R67). `on_demand`: more
    jobs take their splits on demand (R12). `driver`: a driver starts TaskManagers (R65). `reactive`: streaming jobs
    follow the slots (R68).
    """
    modes: dict[str, Any] = {"job_masters": 0} if in_process else {}
    modes |= {"has_queues": True} if queues else {}
    modes |= {"has_adaptive": True} if adaptive else {}
    modes |= {"has_slow_host": True} if speculative else {}
    modes |= {"has_on_demand": True} if on_demand else {}
    modes |= {"has_driver": True} if driver else {}
    modes |= {"is_reactive": True} if reactive else {}
    with _directory_of(seed) as run:
        started = time.perf_counter()
        return on_virtual_time(lambda loop: _live(loop, seed, kinds, run, started, modes))


@contextmanager
def _directory_of(seed: int) -> Iterator[Path]:
    """The directory of a run. Histories have its path in them, so a seed has the same one each time.

    Another run of the seed by this tree is waited for.
    """
    parent = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
    tree = zlib.crc32(os.fsencode(Path(__file__).resolve()))
    run = parent / f"flinklike-simulation-{os.getuid()}-{tree:08x}-{seed}"
    with _locked(run.with_suffix(".lock")):
        shutil.rmtree(run, ignore_errors=True)  # of a run that was killed
        run.mkdir(mode=0o700)
        try:
            yield run
        finally:
            shutil.rmtree(run)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    while True:
        with path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists() or not os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                continue  # whoever had it before has deleted it
            try:
                yield
            finally:
                path.unlink()
            return


def _planned(entropy: SeededEntropy, shape: Shape) -> Iterator[PlannedJob]:
    yield from planned_jobs(entropy.child("jobs"))
    if shape.has_adaptive:
        yield from planned_adaptive_jobs(entropy.child("adaptive"))
    if shape.has_slow_host:
        yield from planned_speculative_jobs(entropy.child("speculative"))
    if shape.has_on_demand:
        yield from planned_on_demand_jobs(entropy.child("on demand"))
    if shape.is_reactive:
        yield from planned_rescaled_jobs(entropy.child("rescaled"))
    if shape.has_driver or shape.has_queues:
        yield from planned_large_jobs(entropy.child("large"), shape.slots)


async def _live(
    loop: SimulatedLoop, seed: int, kinds: frozenset[FaultKind], run: Path, started: float, modes: Mapping[str, Any]
) -> Verdict:
    began = loop.time()
    entropy = SeededEntropy(f"simulation/{seed}")
    shape = replace(_shape(entropy.child("shape")), **modes)
    if shape.has_slow_host:  # else there is no other, or all jobs wait for its slots
        shape = replace(shape, task_managers=max(2, shape.task_managers), slots=max(3, shape.slots))
    shape = _with_driver(shape, entropy.child("driver")) if shape.has_driver else shape
    world = keep(World(loop, f"world/{seed}", run, shape))
    problems: list[str] = []
    loop.set_exception_handler(lambda _loop, context: problems.append(_told(context)))
    world.start()
    for job in _planned(entropy, world.shape):
        world.plan(job)
    all_slots = shape.slots_max or shape.task_managers * shape.slots
    upgrades = list(planned_upgrades(entropy.child("upgrades"), str(run / "savepoints"), all_slots))
    for job in upgrades:
        world.plan(job)
    disposer = Disposer(world, [one.upgrade for one in upgrades if one.upgrade is not None], entropy.child("disposer"))
    disposer.begin()
    fate = Fate(world, kinds, duration=entropy.uniform(30.0, 90.0))
    await asyncio.sleep(entropy.uniform(0.0, 5.0))
    await fate.run()
    patience = QUIET_AFTER_WITH_DRIVER if shape.has_driver else QUIET_AFTER
    if all_slots == 1:  # all jobs run one after the other
        patience *= 2
    if await until(lambda: not world.unfinished, within=patience, every=1.0):
        if shape.has_driver:
            await until(lambda: not any(world.workers.left_over()), within=WORKERS_GO, every=1.0)
        await asyncio.sleep(CALM)
    always = (*ALWAYS, UserFailuresStand)
    checkers = always if kinds - SURVIVABLE else (*always, NothingRunsTwice)
    violations = check(world.history, world.keys, checkers)
    now = loop.time()
    violations += [Violation("promise 1", f"the client of job {one} waits", now) for one in _who_wait(world)]
    violations += [
        Violation("no failures", failure, now) for failure in (*world.failures, *_failed_clients(world), *problems)
    ]
    violations += [Violation("clean-up", left, now) for left in world.left_over()]
    violations += [Violation("R65", left, now) for left in world.workers.left_over() if shape.has_driver]
    return Verdict(
        seed=seed,
        kinds=tuple(fate.kinds),
        violations=tuple(sorted(violations, key=lambda violation: violation.at)),
        virtual_seconds=now - began,
        real_seconds=time.perf_counter() - started,
        history=world.history,
    )


def _told(context: dict[str, Any]) -> str:
    process = CURRENT.get()
    return f"{process}: {context.get('message')}: {context.get('exception')!r}"


def _shape(entropy: SeededEntropy) -> Shape:
    def one_of(low: int, high: int) -> int:
        return int(entropy.uniform(low, high + 1))

    has_keepers = entropy.child("keepers").uniform(0.0, 1.0) < 0.5
    shape = Shape(
        job_managers=2,
        has_keepers=has_keepers,
        job_masters=one_of(1, 3),
        task_managers=one_of(1, 3),
        slots=one_of(1, 4),
    )
    # Once as long as several heartbeats, so that who is lost still runs, and once so short that outages are beyond it.
    return replace(shape, isolation_seconds=20 if entropy.child("isolation").uniform(0, 1) < 0.5 else 60)


def _with_driver(shape: Shape, entropy: SeededEntropy) -> Shape:
    """No TaskManager, or one, that nobody starts but people; and how many slots a driver may bring, and keeps."""
    draw = entropy.uniform
    standing = 1 if draw(0, 1) < 0.3 else 0
    most = (standing + int(draw(1, 4))) * shape.slots
    least = shape.slots if draw(0, 1) < 0.3 else 0
    redundant = 1 if draw(0, 1) < 0.2 else 0
    return replace(shape, task_managers=standing, slots_min=least, slots_max=most, redundant=redundant)


ENDLESS = UserCode(3600.0, 3600.0)


def planned_jobs(entropy: SeededEntropy) -> list[PlannedJob]:
    """A few jobs of several kinds; some fail by themselves, some are cancelled, some are left by their clients."""
    jobs = [_long_job(entropy.child("long"))]
    for number in range(int(entropy.uniform(2, 9))):
        draw = entropy.child(f"job-{number}").uniform
        made = _GRAPHS[int(draw(0, len(_GRAPHS)))]()
        # All of them fit into one slot, one after the other, before patience ends.
        seconds = draw(0.0, 12.0) / sum(one.parallelism for one in made.vertices)
        fails = draw(0, 1) < 0.1
        is_restarted = fails and entropy.child(f"restarts-{number}").uniform(0, 1) < 0.5
        made = made.model_copy(update={"user_failures": "restart"}) if is_restarted else made
        programs = {one.id: UserCode(0.0, seconds) for one in made.vertices}
        if fails or draw(0, 1) < 0.2:
            # One that fails does so as often as it may restart, before patience ends.
            longest = seconds / RESTARTS if fails else seconds
            programs[made.vertices[-1].id] = UserCode(
                0.0, longest, fails=fails, is_restarted=is_restarted, is_short_of_input=not fails
            )
        daemons = entropy.child(f"daemons-{number}").uniform
        programs = {one: replace(code, leaves_daemon=daemons(0, 1) < 0.3) for one, code in programs.items()}
        programs = _with_outputs(made, programs, entropy.child(f"outputs-{number}").uniform)
        cancel_after = draw(0.0, 10.0) if draw(0, 1) < 0.15 else None
        leaves_after = None
        leave = entropy.child(f"leave-{number}").uniform
        if leave(0, 1) < 0.06:
            programs = {**programs, made.vertices[-1].id: ENDLESS}
            leaves_after = leave(0.0, 5.0)
        job_id = JobId(entropy.child(f"id-{number}").hex_id())
        jobs.append(PlannedJob(job_id, made, programs, draw(0.0, 50.0), cancel_after, leaves_after))
    return [*jobs, *planned_streams(entropy.child("streams"))]


def _with_outputs(
    made: JobGraph, programs: dict[VertexId, UserCode], draw: Callable[[float, float], float]
) -> dict[VertexId, UserCode]:
    """Half of the jobs write files: each vertex without a consumer a few."""
    if draw(0, 1) < 0.5:
        return programs
    mode = OVERWRITE if draw(0, 1) < 0.6 else APPEND
    sinks = [one.id for one in made.vertices if not made.out_edges(one.id)]
    files = {vertex_id: 1 + int(draw(0, 6)) for vertex_id in sinks}
    return {one: replace(code, files=files.get(one, 0), mode=mode) for one, code in programs.items()}


def _long_job(entropy: SeededEntropy) -> PlannedJob:
    """One that is there in whatever happens: exclusive, and longer than it takes to lose sight of it."""
    made = lone()
    programs = {one.id: UserCode(10.0, 90.0) for one in made.vertices}
    return PlannedJob(JobId(entropy.child("id").hex_id()), made, programs, entropy.uniform(0.0, 10.0))


def _large() -> JobGraph:
    """Above what travels inline: an object in storage."""
    return lone(params={"text": "x" * 40_000})


def _wide() -> JobGraph:
    read = source("read", parallelism=3, splits=tuple(range(7)))
    return graph(read, vertex("write", OperatorKind.SINK), edges=(edge("read", "write"),))


def _forked() -> JobGraph:
    """Two sinks read the same: one may have finished when the other one needs its input again (R17)."""
    return graph(
        source("read"),
        vertex("first", OperatorKind.SINK),
        vertex("second", OperatorKind.SINK),
        edges=(edge("read", "first"), edge("read", "second")),
    )


def _chain() -> JobGraph:
    return graph(
        source("read", parallelism=2),
        vertex("clean", parallelism=2),
        vertex("write", OperatorKind.SINK, parallelism=2),
        edges=(edge("read", "clean", ExchangeMode.FORWARD), edge("clean", "write", ExchangeMode.HASH)),
    )


_GRAPHS: tuple[Callable[[], JobGraph], ...] = (lone, _large, _wide, _chain, diamond, _forked)


def silence() -> None:
    """Product logs are for the one who replays a seed."""
    logging.disable(logging.CRITICAL)


def _who_wait(world: World) -> list[JobId]:
    """The jobs whose clients never heard an end."""
    return [one.job.job_id for one in world.unfinished]


def _failed_clients(world: World) -> Iterator[str]:
    """What has ended clients that nobody has stopped."""
    for client in world.clients:
        task = client.task
        if task is not None and task.done() and not task.cancelled() and (error := task.exception()) is not None:
            yield f"the client of job {client.job.job_id} has failed: {error!r}"

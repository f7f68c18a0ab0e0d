"""One run of chaos: a cluster, clients, fate; then everything heals, and the ledger is judged."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.fate import Fault, FaultKind, faults
from tests.chaos.judge import judge
from tests.chaos.ledger import FaultLine, Ledger, now, read
from tests.chaos.load import Load
from tests.chaos.members import ChaosCluster, Member
from tests.chaos.report import ChaosReport, count_faults, recoveries
from tests.chaos.watch import Watch

RECOVERY_TIMEOUT = 60.0
END_TIMEOUT = 300.0
HEAL_TIMEOUT = 240.0
TERMINATE_TIMEOUT = 60.0
RUNS_ONCE = "an exclusive task runs once only with spark.master spark://"
_PROGRESS_EVERY = 10.0
_TICK = 0.05
_SIGNALS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "terminate": signal.SIGTERM}
_WITH_TREE = frozenset({"taskmanager-freeze"})
_KEPT_ALIVE = frozenset({"slot", "spark", "main"})
"""Parts of a TaskManager: it replaces them itself, or ends with them and is missed then."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is. `seconds` of faults, one every `every` seconds.

    `runs_once`: executors are on other hosts, as far as the product knows, so exclusive tasks run once (D-052).
    """

    seconds: float
    every: float
    seed: int
    clients: int
    faults: Sequence[FaultKind]
    jobs: Sequence[str]
    runs_once: bool = False


@dataclass
class ChaosRun:
    """The state of one run. `say` gets a line of progress."""

    cluster: ChaosCluster
    settings: Settings
    directory: Path
    say: Callable[[str], None]
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The ledger and the clients; the cluster runs already."""
        self.path = self.directory / "ledger"
        self.ledger = Ledger(str(self.path))
        addresses, token = self.cluster.urls, self.cluster.token
        outputs = self.directory / "outputs"
        kinds = list(self.settings.jobs)
        refusal = RUNS_ONCE if self.settings.runs_once else ""
        self.load = Load(addresses, token, self.ledger, self.path, outputs, kinds, refusal, say=self._tell)
        self.watch = Watch(addresses, token)
        self.begun = time.monotonic()
        self._busy: set[str] = set()
        self._frozen: list[tuple[Member, bool]] = []
        self._starting: Counter[str] = Counter()
        self._absent_until: dict[str, float] = {}
        self._is_over = asyncio.Event()
        self._is_healed = asyncio.Event()
        self._group = asyncio.TaskGroup()

    async def run(self) -> ChaosReport:
        """Everything, from the first job to the verdict."""
        try:
            async with self._group:
                keeper = self._group.create_task(self._keep_started())
                progress = self._group.create_task(self._tell_progress())
                clients = [
                    self._group.create_task(self.load.run_client(self.settings.seed, number, self._is_over))
                    for number in range(self.settings.clients)
                ]
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.seconds):
                        await self._suffer()
                await self._heal()
                await self._await_ends(clients)
                keeper.cancel()
                progress.cancel()
            await self.load.check()
        finally:
            self._wake_all()
            await self.watch.close()
            self.ledger.close()
        return self.report()

    def report(self) -> ChaosReport:
        """The judge's verdict on the ledger."""
        lines, settings = read(self.path), self.settings
        shown = {
            "seed": settings.seed,
            "seconds of faults": f"{settings.seconds:.0f}",
            "every": f"{settings.every:g} s",
        }
        return ChaosReport(
            shown, judge(lines), count_faults(lines), recoveries(lines), self.load.errors, tuple(self.problems)
        )

    # --- faults -----------------------------------------------------------------------------------------------------

    async def _suffer(self) -> None:
        for fault in faults(self.settings.seed, self.settings.every, self.settings.faults):
            await asyncio.sleep(fault.pause)
            members = [one for one in self.cluster.members(fault.kind.role) if not self._is_busy(one)]
            if members:
                self._group.create_task(self._strike(fault, fault.pick(members)))

    def _is_busy(self, member: Member) -> bool:
        return member.name in self._busy or member.name.partition("/")[0] in self._busy

    async def _strike(self, fault: Fault, member: Member) -> None:
        kind = fault.kind
        self._busy.add(member.name)
        try:
            # What it has is asked for while it can still be told.
            owned = await self.watch.jobs_of(member.address) if member.role == "jobmaster" else []
            leads = member.role == "jobmanager" and await self.watch.leads(f"http://{member.address}")
            what = f" for {fault.duration:.1f} s" if kind.step == "freeze" else ""
            self._tell(f"{kind.step} {member.name} (pid {member.process.pid}){what}")
            self._note(kind.step, member)
            self._absent_until[member.role] = time.monotonic() + fault.absence
            member.send(_SIGNALS[kind.step], to_tree=kind.value in _WITH_TREE)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._see_to_its_end(fault, member))
                if owned:
                    group.create_task(self._measure_owners(fault, member, owned))
                if leads:
                    group.create_task(self._measure_rest(fault, member))
        finally:
            self._busy.discard(member.name)

    async def _see_to_its_end(self, fault: Fault, member: Member) -> None:
        if fault.kind.step == "freeze":
            is_tree = fault.kind.value in _WITH_TREE
            self._frozen.append((member, is_tree))
            await asyncio.sleep(fault.duration)
            self._wake(member, is_tree=is_tree)
            return
        if not await self._gone(member, TERMINATE_TIMEOUT):
            self.problems.append(f"{member.name} (pid {member.process.pid}) does not end after {fault.kind.step}")
            self._tell(self.problems[-1])
            member.send(signal.SIGKILL)
            await self._gone(member, TERMINATE_TIMEOUT)
        self._note("gone", member)

    async def _gone(self, member: Member, timeout: float) -> bool:
        until = time.monotonic() + timeout
        while member.process.is_running and time.monotonic() < until:
            await asyncio.sleep(_TICK)
        return not member.process.is_running

    def _wake(self, member: Member, *, is_tree: bool) -> None:
        if (member, is_tree) in self._frozen:
            self._frozen.remove((member, is_tree))
            member.send(signal.SIGCONT, to_tree=is_tree)
            self._note("wake", member)

    def _wake_all(self) -> None:
        for member, is_tree in list(self._frozen):
            self._wake(member, is_tree=is_tree)

    # --- what recovers, and when ------------------------------------------------------------------------------------

    async def _measure_rest(self, fault: Fault, member: Member) -> None:
        seconds = await self.watch.seconds_until(self.watch.rest_answers, RECOVERY_TIMEOUT)
        self._note_recovery(f"{fault.kind.value.replace('-', ' ')}: REST answers", member, seconds)

    async def _measure_owners(self, fault: Fault, member: Member, owned: list[str]) -> None:
        async def have_left() -> bool:
            return await self.watch.have_left(owned, member.address)

        if fault.kind.step == "freeze" and fault.duration < 2 * RECOVERY_TIMEOUT:
            return await self._measure_frozen(fault, member, owned)
        seconds = await self.watch.seconds_until(have_left, RECOVERY_TIMEOUT)
        return self._note_recovery(f"{fault.kind.value.replace('-', ' ')}: its jobs have other owners", member, seconds)

    async def _measure_frozen(self, fault: Fault, member: Member, owned: list[str]) -> None:
        """Jobs of an owner that wakes in time stay where they are: that is no recovery."""

        async def have_left() -> bool:
            return await self.watch.have_left(owned, member.address)

        seconds = await self.watch.seconds_until(have_left, fault.duration)
        if seconds is not None:
            self._note_recovery("jobmaster freeze: its jobs have other owners", member, seconds)

    def _note_recovery(self, measure: str, member: Member, seconds: float | None) -> None:
        if seconds is None:
            self.problems.append(f"{measure}: not within {RECOVERY_TIMEOUT:.0f} s of a fault of {member.name}")
            self._tell(self.problems[-1])
            return
        self._tell(f"{measure} after {seconds:.2f} s")
        self._note("recovered", member, measure=measure, seconds=seconds)

    # --- healing ----------------------------------------------------------------------------------------------------

    async def _keep_started(self) -> None:
        """Start again what has ended, after the absence that fate has drawn."""
        while True:
            for role, count in self.cluster.missing().items():
                is_due = time.monotonic() >= self._absent_until.get(role, 0.0) or self._is_healed.is_set()
                for _ in range(count - self._starting[role] if is_due else 0):
                    self._starting[role] += 1
                    self._group.create_task(self._start_one(role))
            await asyncio.sleep(0.2)

    async def _start_one(self, role: str) -> None:
        try:
            done = await self.cluster.start_one(role)
            if done.returncode == 0:
                self._tell(f"{role} started")
                self.ledger.add(FaultLine(now(), "back", role, role))
            else:
                self._tell(f"{role} did not start: {(done.stderr or done.stdout).strip()[-300:]}")
        finally:
            self._starting[role] -= 1

    async def _heal(self) -> None:
        self._tell("everything heals")
        self._is_healed.set()
        self._wake_all()
        until = time.monotonic() + HEAL_TIMEOUT
        while self.cluster.missing() or +self._starting:
            if time.monotonic() > until:
                self.problems.append(f"still missing after {HEAL_TIMEOUT:.0f} s: {self.cluster.missing()}")
                return
            await asyncio.sleep(_TICK)

    async def _await_ends(self, clients: Sequence[asyncio.Task[None]]) -> None:
        self._is_over.set()
        _, late = await asyncio.wait(clients, timeout=END_TIMEOUT)
        for client in late:
            client.cancel()
        await self.load.await_ends(1.0 if late else END_TIMEOUT)

    # --- telling ----------------------------------------------------------------------------------------------------

    def _note(self, step: str, member: Member, *, measure: str = "", seconds: float = 0.0) -> None:
        pid = member.process.pid
        self.ledger.add(FaultLine(now(), step, member.role, member.name, pid, member.task_manager, measure, seconds))

    def _tell(self, text: str) -> None:
        self.say(f"{time.monotonic() - self.begun:6.1f} s  {text}")

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_EVERY)
            load = self.load
            self._tell(
                f"{load.acknowledged} jobs acknowledged, {len(load.ended)} ended, {len(load.unfinished)} under way"
            )

"""What fate may do, drawn from the seed: first faults for a bounded time, then everything heals.

`SURVIVABLE` is what today's product must get over without any job noticing. The other kinds exist, and the tests of the
kit show that they really happen; a kind moves to `SURVIVABLE` with the rule of the protocol that makes it so.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum

from runtime.highavailability.kv.key_value_store import KeyValue
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record
from runtime.highavailability.records import TaskManagerRecord
from tests.kit.simulation.disposers import DisposalTrouble
from tests.kit.simulation.etcd import HOST
from tests.kit.simulation.etcd_trouble import MEMBERS
from tests.kit.simulation.history import READABLE, UNREADABLE, Fault
from tests.kit.simulation.network import Weather
from tests.kit.simulation.processes import Life, SimulatedProcess
from tests.kit.simulation.query_drains import QueryDrains
from tests.kit.simulation.storage import SimulatedFileSystem, failing
from tests.kit.simulation.world import RESTARTS, World

_HANGS = 0.01
"""How often an operation of slow storage takes as long as a mount that hangs."""


class FaultKind(Enum):
    """A kind of misfortune."""

    SLOW_LINKS = "slow-links"
    LOST_MESSAGES = "lost-messages"
    DUPLICATES = "duplicates"
    BROKEN_STREAMS = "broken-streams"
    BROKEN_TASK_STREAMS = "broken-task-streams"
    STORAGE_SLOW = "storage-slow"
    COMPACTION = "compaction"
    ETCD_AWAY = "etcd-away"
    LEADER_CRASH = "leader-crash"
    LEADER_FREEZE = "leader-freeze"
    LEADER_RESIGN = "leader-resign"
    LEADER_DEAF = "leader-deaf"
    LEADER_CUT_OFF = "leader-cut-off"
    STORAGE_FAILS = "storage-fails"
    STORAGE_FULL = "storage-full"
    STORAGE_LOSES_FILE = "storage-loses-file"
    CORRUPT_RECORD = "corrupt-record"
    LEASES_LAPSE = "leases-lapse"
    ETCD_OUTAGE = "etcd-outage"
    ETCD_FULL = "etcd-full"
    ETCD_LATE = "etcd-late"
    ETCD_MEMBER_BEHIND = "etcd-member-behind"
    WATCH_LOSES_CHANGES = "watch-loses-changes"
    JOB_MASTER_CRASH = "job-master-crash"
    JOB_MASTER_FREEZE = "job-master-freeze"
    JOB_MASTER_STOP = "job-master-stop"
    JOB_MASTER_DEAF = "job-master-deaf"
    JOB_MASTER_DRAIN = "job-master-drain"
    JOB_MOVE = "job-move"
    TASK_MANAGER_CRASH = "task-manager-crash"
    TASK_MANAGER_FREEZE = "task-manager-freeze"
    TASK_MANAGER_STOP = "task-manager-stop"
    TASK_MANAGER_DRAIN = "task-manager-drain"
    TEMPLATE_CRASH = "template-crash"
    GUARDS_CRASH = "guards-crash"
    UNREADABLE_RECORD = "unreadable-record"
    POWER_CUT = "power-cut"
    PARTITION = "partition"
    LEADER_STUCK = "leader-stuck"
    JOB_MASTER_STUCK = "job-master-stuck"


SURVIVABLE = frozenset(
    {
        FaultKind.SLOW_LINKS,
        FaultKind.LOST_MESSAGES,
        FaultKind.DUPLICATES,
        FaultKind.BROKEN_STREAMS,
        FaultKind.BROKEN_TASK_STREAMS,
        FaultKind.STORAGE_SLOW,
        FaultKind.STORAGE_FAILS,
        FaultKind.STORAGE_FULL,
        FaultKind.STORAGE_LOSES_FILE,
        FaultKind.CORRUPT_RECORD,
        FaultKind.COMPACTION,
        FaultKind.ETCD_AWAY,
        FaultKind.ETCD_OUTAGE,
        FaultKind.ETCD_FULL,
        FaultKind.ETCD_LATE,
        FaultKind.ETCD_MEMBER_BEHIND,
        FaultKind.WATCH_LOSES_CHANGES,
        FaultKind.LEADER_CRASH,
        FaultKind.LEADER_FREEZE,
        FaultKind.LEADER_RESIGN,
        FaultKind.LEADER_DEAF,
        FaultKind.LEADER_CUT_OFF,
        FaultKind.LEASES_LAPSE,
        FaultKind.JOB_MASTER_CRASH,
        FaultKind.JOB_MASTER_FREEZE,
        FaultKind.JOB_MASTER_STOP,
        FaultKind.JOB_MASTER_DEAF,
        FaultKind.JOB_MASTER_DRAIN,
        FaultKind.JOB_MOVE,
        FaultKind.TASK_MANAGER_CRASH,
        FaultKind.TASK_MANAGER_FREEZE,
        FaultKind.TASK_MANAGER_STOP,
        FaultKind.TASK_MANAGER_DRAIN,
        FaultKind.TEMPLATE_CRASH,
        FaultKind.GUARDS_CRASH,
        FaultKind.UNREADABLE_RECORD,
        FaultKind.PARTITION,
        FaultKind.POWER_CUT,
        FaultKind.LEADER_STUCK,
        FaultKind.JOB_MASTER_STUCK,
    }
)
"""No job may notice these, but for those whose stored bytes are lost or spoiled: they may fail. No task either, but for
those of a TaskManager that dies, or cannot be reached for heartbeat.timeout: they run again.
"""


STUCK = (FaultKind.LEADER_STUCK, FaultKind.JOB_MASTER_STUCK)
"""Without a lease keeper the same as frozen."""
LOSES_SIGHT = (FaultKind.PARTITION, FaultKind.TASK_MANAGER_FREEZE)


class Fate:
    """The misfortunes of one seed. `run` lasts as long as they do."""

    def __init__(self, world: World, kinds: frozenset[FaultKind], duration: float) -> None:
        self._world = world
        self._entropy = world.entropy.child("fate")
        self._duration = duration
        self._task_managers_lost = 0
        # Not all at once in every seed: what hides behind one fault shows without it. Some seeds have a few only, and
        # in some nothing happens but that one task gets out of sight, until its owner must go on without a word.
        draw = self._entropy.child("share").uniform
        share = 0.6 if draw(0, 1) < 0.6 else 0.2
        chosen = [kind for kind in FaultKind if kind in kinds and (world.shape.has_keepers or kind not in STUCK)]
        self.only_loses_sight = draw(0, 1) < 0.2 and not kinds.isdisjoint(LOSES_SIGHT)
        self.kinds = [kind for kind in chosen if self._entropy.uniform(0, 1) < share]
        if self.only_loses_sight:
            self.kinds = [kind for kind in chosen if kind in LOSES_SIGHT]
            self._duration = max(duration, 1.5 * world.shape.isolation_seconds)
        drains = FaultKind.TASK_MANAGER_DRAIN in kinds and not self.only_loses_sight
        stops = FaultKind.TASK_MANAGER_STOP in kinds
        self._moves = QueryDrains(world, self._entropy.child("moves"), drains=drains, stops=stops)
        self._disposals = DisposalTrouble(
            world,
            self._entropy.child("disposals"),
            crashes=FaultKind.LEADER_CRASH in kinds and not self.only_loses_sight,
            freezes=FaultKind.LEADER_FREEZE in kinds and not self.only_loses_sight,
            stops=lambda name: FaultKind.TASK_MANAGER_CRASH in self.kinds and self._may_lose(name),
        )

    async def run(self) -> None:
        """Until the time of faults is over; then all is healed."""
        world = self._world
        end = world.loop.time() + self._duration
        world.history.add(world.loop.time(), "fate", Fault(f"may do: {', '.join(kind.value for kind in self.kinds)}"))
        self._set_weather()
        self._moves.begin(end)
        self._disposals.begin(end)
        actions = [(kind, action) for kind, action in self._actions().items() if kind in self.kinds]
        if not world.job_masters:
            actions = [(kind, action) for kind, action in actions if not kind.name.startswith("JOB_MASTER_")]
        grudge = self._entropy.child("grudge").uniform(0.0, 2.0) * self._duration
        while world.loop.time() < end:
            await asyncio.sleep(self._entropy.uniform(0.2, 4.0))
            if (self.only_loses_sight or end - world.loop.time() < grudge) and await self._lose_sight():
                await asyncio.sleep(max(0.0, end - world.loop.time()) if self.only_loses_sight else 0.0)
                grudge = 0.0
            if actions and not self.only_loses_sight:
                _, action = actions[int(self._entropy.uniform(0, len(actions)))]
                await action()
        self.heal()

    def heal(self) -> None:
        """Calm weather, no partitions, everybody awake and alive."""
        world = self._world
        world.network.weather = Weather()
        world.etcd_state.trouble.heal()
        world.loop.storage_delay = _quick
        world.loop.outputs_delay = lambda: 0.0005
        SimulatedFileSystem.heal()
        world.workers.heal()
        world.history.add(world.loop.time(), "fate", Fault("is kind from now on"))
        for source in world.processes:
            for target in world.processes:
                if world.network.link(source, target).blocked_since is not None:
                    world.heal(source, target)
        for name in world.names:
            life = world.processes[name].life if name in world.processes else Life.RUNNING
            if life is Life.FROZEN:
                world.thaw(name)
            elif life is Life.DEAD:
                world.start_process(name)
        world.operator.undrain_all([*world.job_masters, *world.standing_task_managers])

    # --- weather: what every message suffers ------------------------------------------------------------------------

    def _set_weather(self) -> None:
        kinds, draw = self.kinds, self._entropy.uniform
        weather = Weather(spares_leases=FaultKind.LEASES_LAPSE not in kinds)
        if FaultKind.SLOW_LINKS in kinds:
            weather.delay_high = draw(0.002, 0.1)
            weather.slow = draw(0.0, 0.1)
            weather.slow_max = draw(0.2, 2.5)
        if FaultKind.LOST_MESSAGES in kinds:
            weather.lost_before = draw(0.0, 0.15)
            weather.lost_after = draw(0.0, 0.15)
        if FaultKind.BROKEN_STREAMS in kinds:
            weather.broken_wire = draw(0.0, 0.02)
        if FaultKind.BROKEN_TASK_STREAMS in kinds:
            weather.broken_task_wire = draw(0.0, 0.02)
        if FaultKind.DUPLICATES in kinds:
            weather.duplicated = draw(0.0, 0.3)
        self._world.network.weather = weather
        trouble = self._world.etcd_state.trouble
        trouble.changes_lost = draw(0.0, 0.3) if FaultKind.WATCH_LOSES_CHANGES in kinds else 0.0
        trouble.requests_late = draw(0.0, 0.1) if FaultKind.ETCD_LATE in kinds else 0.0
        trouble.renewals_slow = 0.3 if FaultKind.LEASES_LAPSE in kinds else 0.0
        for rate, what in ((trouble.changes_lost, "does not tell watches"), (trouble.requests_late, "executes late")):
            if rate:
                self._tell(HOST, f"{what} of {rate:.3f} of all changes")
        self._set_storage(draw(0.01, 2.0))

    def _set_storage(self, slowest: float) -> None:
        kinds, entropy = self.kinds, self._entropy.child("storage")

        def delay(_process: SimulatedProcess | None) -> float:
            hangs = entropy.uniform(0.0, 1.0) < _HANGS
            return entropy.uniform(2.0, 20.0) if hangs else entropy.uniform(0.0, slowest)

        outputs = entropy.child("outputs").uniform
        slow = outputs(0.1, 2.0)
        self._world.loop.outputs_delay = lambda: outputs(0.0, slow)  # a commit lasts: much may happen to it
        if FaultKind.STORAGE_SLOW in kinds:
            self._world.loop.storage_delay = delay
        if FaultKind.STORAGE_FAILS in kinds:
            SimulatedFileSystem.mishap = staticmethod(failing(entropy.child("failures").uniform, 0.1))

    # --- actions: what happens to one process -----------------------------------------------------------------------

    def _actions(self) -> dict[FaultKind, Callable[[], Awaitable[None]]]:
        world = self._world
        return {
            FaultKind.COMPACTION: self._compact,
            FaultKind.STORAGE_FULL: self._fill_storage,
            FaultKind.STORAGE_LOSES_FILE: self._lose_file,
            FaultKind.CORRUPT_RECORD: self._spoil_record,
            FaultKind.ETCD_AWAY: lambda: self._stop(HOST, 0.2, 2.0),
            FaultKind.ETCD_OUTAGE: lambda: self._stop(HOST, 3.0, 45.0),
            FaultKind.ETCD_FULL: self._fill_etcd,
            FaultKind.ETCD_MEMBER_BEHIND: self._leave_member_behind,
            FaultKind.LEADER_CRASH: lambda: self._crash(world.leader(), 0.5, 10.0),
            FaultKind.LEADER_FREEZE: lambda: self._freeze(world.leader(), 0.5, 20.0),
            FaultKind.LEADER_RESIGN: lambda: self._terminate(world.leader()),
            FaultKind.LEADER_DEAF: lambda: self._deafen(world.leader(), 10.0),
            FaultKind.LEADER_CUT_OFF: self._cut_off_leader,
            FaultKind.JOB_MASTER_CRASH: lambda: self._crash(self._one_of(world.job_masters), 0.5, 10.0),
            FaultKind.JOB_MASTER_FREEZE: lambda: self._freeze(self._one_of(world.job_masters), 0.5, 30.0),
            FaultKind.JOB_MASTER_STOP: lambda: self._terminate(self._one_of(world.job_masters)),
            FaultKind.JOB_MASTER_DEAF: lambda: self._deafen(self._one_of(world.job_masters), 4.0),
            FaultKind.JOB_MASTER_DRAIN: self._drain,
            FaultKind.JOB_MOVE: self._move,
            FaultKind.TASK_MANAGER_CRASH: self._crash_task_manager,
            FaultKind.TASK_MANAGER_FREEZE: self._freeze_task_manager,
            FaultKind.TASK_MANAGER_STOP: lambda: self._terminate(self._one_of(world.task_managers)),
            FaultKind.TASK_MANAGER_DRAIN: self._drain_slots,
            FaultKind.TEMPLATE_CRASH: self._crash_template,
            FaultKind.GUARDS_CRASH: self._crash_guards,
            FaultKind.UNREADABLE_RECORD: self._make_unreadable,
            FaultKind.POWER_CUT: self._cut_power,
            FaultKind.PARTITION: self._partition,
            FaultKind.LEADER_STUCK: lambda: self._freeze(world.leader(), 0.5, 30.0, is_stuck=True),
            FaultKind.JOB_MASTER_STUCK: lambda: self._freeze(self._one_of(world.job_masters), 0.5, 30.0, is_stuck=True),
        }

    def _one_of(self, names: list[str]) -> str:
        """ "" where there is none: nothing happens to nobody."""
        number = int(self._entropy.uniform(0, len(names)))
        return names[number] if names else ""

    async def _compact(self) -> None:
        store = self._world.etcd_state.store
        self._world.history.add(self._world.loop.time(), HOST, Fault(f"forgets history before {store.revision}"))
        store.compact(store.revision)

    async def _fill_etcd(self) -> None:
        trouble = self._world.etcd_state.trouble
        trouble.fill(int(self._entropy.uniform(0, 8)))
        self._tell(HOST, f"has no room: {trouble.slack} more are executed and refused")
        self._world.loop.outside_later(self._entropy.uniform(0.5, 15.0), self._empty_etcd)

    def _empty_etcd(self) -> None:
        self._world.etcd_state.trouble.make_room()
        self._tell(HOST, "has room")

    async def _leave_member_behind(self) -> None:
        trouble, now = self._world.etcd_state.trouble, self._world.loop.time()
        member, until = int(self._entropy.uniform(0, MEMBERS)), now + self._entropy.uniform(0.5, 15.0)
        is_cut_off = self._entropy.uniform(0, 1) < 0.5
        (trouble.cut_off_until if is_cut_off else trouble.behind_until)[member] = until
        self._tell(HOST, f"member {member} is {'cut off' if is_cut_off else 'behind'} for {until - now:.1f} s")

    async def _fill_storage(self) -> None:
        number = errno.ENOSPC if self._entropy.uniform(0, 1) < 0.5 else errno.EROFS
        SimulatedFileSystem.takes_nothing = number
        self._tell("storage", f"takes nothing: {os.strerror(number)}")
        self._world.loop.outside_later(self._entropy.uniform(0.5, 20.0), self._make_room)

    def _make_room(self) -> None:
        SimulatedFileSystem.takes_nothing = 0
        self._tell("storage", "takes what is written")

    async def _lose_file(self) -> None:
        SimulatedFileSystem.lose(self._entropy.uniform)

    async def _spoil_record(self) -> None:
        world = self._world
        jobs = [kv.key for kv in world.etcd_state.everything(world.keys.jobs)]
        records = [key for key in jobs if key.endswith("/graph") or "/events/" in key]
        if records and world.is_running(HOST):
            world.etcd_state.spoil(self._one_of(records))

    def _tell(self, who: str, what: str) -> None:
        self._world.history.add(self._world.loop.time(), who, Fault(what))

    async def _stop(self, name: str, low: float, high: float) -> None:
        if self._entropy.uniform(0, 1) < 0.5:
            await self._crash(name, low, high)
        else:
            await self._freeze(name, low, high)
        # Two short absences in a row are a long one: leases are to be renewed in between.
        await asyncio.sleep(high + self._entropy.uniform(3.0, 6.0))

    async def _crash(self, name: str | None, low: float, high: float) -> None:
        world = self._world
        if name is not None and world.is_running(name):
            world.crash(name)
            world.loop.outside_later(self._entropy.uniform(low, high), self._start, name)

    async def _crash_task_manager(self) -> None:
        """All that runs there is lost."""
        name = self._one_of(self._world.task_managers)
        if self._may_lose(name) and self._world.is_running(name):
            await self._crash(name, 0.5, 10.0)

    async def _crash_template(self) -> None:
        """Slot processes and what they have started; main process and guards go on."""
        name = self._one_of(self._world.task_managers)
        if self._may_lose(name) and self._world.is_running(name):
            self._world.crash_template(name)

    async def _crash_guards(self) -> None:
        """Nobody reaps before the next start there; its supervisor is quicker than a fence is waited out."""
        world, name = self._world, self._one_of(self._world.task_managers)
        if self._may_lose(name) and world.is_running(name):
            world.crash_guards(name)
            world.loop.outside_later(self._entropy.uniform(0.5, 10.0), self._start, name)

    async def _make_unreadable(self) -> None:
        """A record of who is there is of another version for a while (R31)."""
        world = self._world
        if not world.is_running(HOST):
            return
        there = [
            *world.etcd_state.everything(world.keys.task_managers),
            *world.etcd_state.everything(world.keys.job_masters),
        ]
        if there:
            chosen = there[int(self._entropy.uniform(0, len(there)))]
            world.etcd_state.spoil(chosen.key, b'{"v": 99, "record": {}}', chosen.lease)
            task_manager = _task_manager_in(chosen)
            if task_manager:
                self._tell(task_manager, UNREADABLE)
            world.loop.outside_later(self._entropy.uniform(0.5, 15.0), self._make_readable, chosen, task_manager)

    def _make_readable(self, record: KeyValue, task_manager: str) -> None:
        """Unless it was deleted, or written anew, meanwhile."""
        if task_manager:
            self._tell(task_manager, READABLE)
        state = self._world.etcd_state
        now = next((kv for kv in state.everything(record.key) if kv.key == record.key), None)
        if now is not None and now.value.startswith(b'{"v": 99'):
            state.overwrite(record.key, record.value, now.lease)

    async def _cut_power(self) -> None:
        """Everything is killed at once, etcd included, and comes back one by one."""
        world = self._world
        if self._may_lose(*world.task_managers):
            for name in world.names:
                await self._crash(name, 0.5, 10.0)

    def _start(self, name: str) -> None:
        if self._world.processes[name].life is Life.DEAD:
            self._world.start_process(name)

    async def _terminate(self, name: str | None) -> None:
        if name is not None and self._world.is_running(name):
            self._world.terminate(name)

    async def _deafen(self, name: str | None, high: float) -> None:
        if name is not None and self._world.is_running(name):
            self._world.deafen(name, self._entropy.uniform(0.1, high))

    async def _drain(self) -> None:
        self._world.operator.drain_some(self._entropy.uniform(0.5, 20.0))

    async def _drain_slots(self) -> None:
        self._world.operator.drain_slots(self._entropy.uniform(0.5, 40.0))

    async def _move(self) -> None:
        self._world.operator.move_some()

    async def _freeze(self, name: str | None, low: float, high: float, *, is_stuck: bool = False) -> None:
        world = self._world
        if name is not None and world.is_running(name):
            process = world.processes[name]
            world.freeze(name, is_stuck=is_stuck)
            world.loop.outside_later(self._entropy.uniform(low, high), self._thaw, name, process)

    def _thaw(self, name: str, process: SimulatedProcess) -> None:
        if process.life is Life.FROZEN:
            self._world.thaw(name)

    async def _lose_sight(self) -> bool:
        """Of a task that must not run twice, for long, if there is one."""
        world = self._world
        kinds = [kind for kind in LOSES_SIGHT if kind in self.kinds]
        least = world.loop.time() + 0.8 * world.shape.isolation_seconds
        running = [name for name in world.task_managers if world.is_running(name)]
        busy = [name for name in running if world.machine(name).exclusive_until > least]
        if not kinds or not busy or not self._may_lose(name := self._one_of(busy)):
            return False
        timeout = world.shape.isolation_seconds
        is_short = self._entropy.uniform(0, 1) < 0.5 and not self.only_loses_sight
        seconds = self._entropy.uniform(8.0, timeout) if is_short else 1.2 * timeout
        if kinds[int(self._entropy.uniform(0, len(kinds)))] is FaultKind.PARTITION:
            self._cut_off(name, seconds)
        else:
            await self._freeze(name, seconds, seconds)
        return True

    async def _freeze_task_manager(self) -> None:
        """Longer than heartbeat.timeout, it is lost as well."""
        name = self._one_of(self._world.task_managers)
        if self._may_lose(name) and self._world.is_running(name):
            await self._freeze(name, 0.5, 30.0)

    def _may_lose(self, *names: str) -> bool:
        """Each loss of its tasks costs a job one of its restarts, and no job shall end for lack of them."""
        losses = sum(name in self._world.task_managers for name in names)
        if self._task_managers_lost + losses > RESTARTS:
            return False
        self._task_managers_lost += losses
        return True

    async def _cut_off_leader(self) -> None:
        """From etcd only: whoever asks it, reaches it. The last renewal of its lease was answered late (R4)."""
        world = self._world
        trouble, rate = world.etcd_state.trouble, world.etcd_state.trouble.renewals_slow
        trouble.renewals_slow = 1.0
        await asyncio.sleep(self._entropy.uniform(3.5, 6.0))
        trouble.renewals_slow = rate
        leader = world.leader()
        if leader is None or any(world.network.link(*pair).blocked_since for pair in ((leader, HOST), (HOST, leader))):
            return
        seconds = self._entropy.uniform(5.0, 25.0)
        for one, other in ((leader, HOST), (HOST, leader)):
            world.partition(one, other)
            world.loop.outside_later(seconds, self._heal, one, other)

    async def _partition(self) -> None:
        world, names = self._world, self._world.names
        source, target = self._one_of(names), self._one_of(names)
        if source == target or world.network.link(source, target).blocked_since is not None:
            return
        if self._may_lose(source, target):
            pairs = [(source, target), (target, source)][: 1 + int(self._entropy.uniform(0, 2))]
            self._separate(pairs, self._entropy.uniform(0.5, 40.0))

    def _cut_off(self, name: str, seconds: float) -> None:
        """From all who own jobs, so that it may be fenced off; perhaps from etcd too, and then nobody confirms that."""
        world = self._world
        others = [*world.job_masters, HOST][: len(world.job_masters) + int(self._entropy.uniform(0, 2))]
        self._separate([pair for other in others for pair in ((name, other), (other, name))], seconds)

    def _separate(self, pairs: Iterable[tuple[str, str]], seconds: float) -> None:
        world = self._world
        for source, target in pairs:
            if world.network.link(source, target).blocked_since is None:
                world.partition(source, target)
                world.loop.outside_later(seconds, self._heal, source, target)

    def _heal(self, source: str, target: str) -> None:
        if self._world.network.link(source, target).blocked_since is not None:
            self._world.heal(source, target)


def _quick(_process: SimulatedProcess | None) -> float:
    return 0.0005


def _task_manager_in(kv: KeyValue) -> str:
    """The name in a TaskManager's registration, "" for any other record and for one that cannot be read already."""
    try:
        return decode_record(TaskManagerRecord, kv.value, key=kv.key).task_manager_id
    except UnreadableRecordError:
        return ""

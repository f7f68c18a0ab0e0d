"""The whole cluster in one loop: every process is the product's own entry point, on simulated surroundings.

What is replaced: the transport, etcd, REST's sockets, slot processes, the guard, /proc, the clock, randomness. All else
(elections, registrations, Dispatcher, ResourceManager, JobMasters, TaskExecutors, blob stores on real files) is what
production runs, built by what builds it there.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jobmaster_process.entry_point import JobMasterEntryPoint
from jobmaster_process.secondary_dispatcher import ProcessLoad
from runtime.aio.entropy import SeededEntropy
from runtime.common.clock import Clock
from runtime.common.errors import RetryableError
from runtime.common.worker_ids import WORKER_ID_PREFIX
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.loading import load
from runtime.entrypoint.control.daemon import TASKMANAGER, DaemonKind
from runtime.entrypoint.job_manager import ClusterEntrypoint
from runtime.entrypoint.process import STOP_DEADLINE, ClusterProcess, NewLifeError, ProcessContext, leave
from runtime.entrypoint.process_options import guard_dialler, high_availability_settings
from runtime.entrypoint.signals import StopSignal
from runtime.entrypoint.task_manager_process import TaskManagerProcess
from runtime.gateways.resource_manager import RegisterTaskManager
from runtime.heartbeat.proof_of_death import GuardDialler
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.keeper import NO_KEEPER, LeaseKeeper
from runtime.highavailability.record_codec import decode_record
from runtime.highavailability.records import DoneRecord
from runtime.rpc.settings import RpcSettings
from tests.kit.simulation.clients import Client, PlannedJob, SimulatedRest
from tests.kit.simulation.etcd import ADDRESS, HOST, EtcdServer, EtcdState, SimulatedKeyValueStore
from tests.kit.simulation.etcd_trouble import EtcdTrouble
from tests.kit.simulation.guards import GuardSockets, SimulatedGuard, SimulatedGuardConnection
from tests.kit.simulation.history import (
    AWAKE,
    CUT_OFF,
    FAILED,
    FROZEN,
    KILLED,
    REACHED,
    STARTS,
    STOPPED,
    TEMPLATE_KILLED,
    TERMINATED,
    Fault,
    History,
    ProcessEvent,
    SavepointTaken,
)
from tests.kit.simulation.keepers import SimulatedKeeper
from tests.kit.simulation.network import Network
from tests.kit.simulation.operator import Operator
from tests.kit.simulation.outputs import OLD_FILE
from tests.kit.simulation.processes import CURRENT, EPOCH_MILLIS, Life, SimulatedLoop, SimulatedProcess
from tests.kit.simulation.queries import Directories
from tests.kit.simulation.savepoints import Witness
from tests.kit.simulation.slots import Programs, SimulatedSlotPool, SlotMachine
from tests.kit.simulation.speculative_jobs import SLOWNESS
from tests.kit.simulation.storage import OUTPUTS, URL, SimulatedFileSystem
from tests.kit.simulation.transport import SimulatedRpcService
from tests.kit.simulation.workers import SimulatedDriver, WorkerHost, worker_options

logger = logging.getLogger(__name__)

REST_PORT = 8081
JOB_MANAGER_PORT = 6123
JOB_MASTER_PORT = 6124

RESTARTS = 8
"""That a job may use up; fate fails no job more often."""


@dataclass(frozen=True)
class Shape:
    """How large the cluster is, and how patient. `job_masters` 0: they run inside the JobManager.

    `has_keepers`: JobManagers and JobMaster processes have lease keepers (R40). `has_queues`: jobs are in queues (R64).
    `has_adaptive`: of some jobs the cluster chooses the parallelism (R66). `has_on_demand`: some take their splits on
    demand (R12). `has_slow_host`: tasks take longer on one host, and jobs have slow tasks run a second time (R67).
    `is_reactive`: streaming jobs follow the slots (R68).
    `has_driver`: a driver starts TaskManagers beside these, within the bounds that follow (R65).
    """

    job_managers: int = 2
    job_masters: int = 2
    task_managers: int = 2
    slots: int = 3
    isolation_seconds: int = 20
    has_keepers: bool = True
    has_queues: bool = False
    has_adaptive: bool = False
    has_on_demand: bool = False
    has_slow_host: bool = False
    has_driver: bool = False
    slots_min: int = 0
    slots_max: int = 0
    redundant: int = 0
    is_reactive: bool = False


class ProcessClock:
    """The clock of one host: steady time is the loop's, wall time may be off."""

    def __init__(self, loop: SimulatedLoop, offset_millis: int) -> None:
        self._loop = loop
        self._offset_millis = offset_millis

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._loop.time()

    def epoch_millis(self) -> int:
        """Virtual wall time, as this host has it."""
        return EPOCH_MILLIS + self._offset_millis + int(self._loop.time() * 1000)


class _Load:
    """LoadProbe: always the same."""

    def __init__(self, _clock: Clock) -> None:
        self._load = ProcessLoad(0.1, 64 * 1024 * 1024)

    def sample(self) -> ProcessLoad:
        """The load."""
        return self._load

    async def watch(self) -> None:
        """Nothing is measured."""
        await asyncio.get_running_loop().create_future()


async def _guard_is_there(registration: RegisterTaskManager, _configuration: Configuration) -> None:
    assert registration.guard_address


@dataclass
class _Context(ProcessContext):
    on_ready: Callable[[], None] = field(default=lambda: None)

    def ready(self, facts: Any) -> None:
        """It serves."""
        assert facts
        self.is_ready = True
        self.on_ready()


class World:
    """Made inside the loop. `start`, then let time pass and fate do its work."""

    def __init__(self, loop: SimulatedLoop, seed: str, run: Path, shape: Shape) -> None:
        self.loop = loop
        self.entropy = SeededEntropy(seed)
        self.keys = Keys.of_cluster("default")
        directories = Directories(run / "checkpoints")
        self.witness = Witness(self.keys, directories.shelf)
        self.history = History(isolation_seconds=shape.isolation_seconds, witness=self.witness)
        self.shape = shape
        self.network = Network(loop, self.entropy.child("network"))
        self.etcd_state = EtcdState(loop, self.history, EtcdTrouble(self.entropy.child("etcd-trouble")))
        self.programs = Programs(directories)
        loop.after_work = self._look_at_savepoints
        self.processes: dict[str, SimulatedProcess] = {}
        self.clients: list[Client] = []
        self.ready: set[tuple[str, int]] = set()
        self.failures: list[str] = []
        SimulatedFileSystem.attach(loop, self.history)
        self._configurations: dict[str, Configuration] = {}
        self._lives: dict[str, int] = {}
        self._run = run
        self._machines: dict[str, SlotMachine] = {}
        self._once_cut_off: set[str] = set()
        self._frozen_early: set[tuple[str, int]] = set()
        """Lives that were frozen before they served: nobody uses them yet, so their guards have to prove nothing."""
        self._guards: dict[str, SimulatedGuard] = {}
        self._keepers: dict[str, SimulatedKeeper] = {}
        self._lives_guarded: dict[str, list[SimulatedGuard]] = {}
        self._running: dict[str, tuple[ProcessContext, asyncio.Task[Any]]] = {}
        self.workers = WorkerHost(self, self.entropy.child("workers"))
        person = SimulatedProcess(loop, "operator")
        self.operator = Operator(self.network, self.history, self.rest_addresses, person, self.entropy)

    def _look_at_savepoints(self) -> None:
        process = CURRENT.get()
        for taken in self.programs.directories.shelf.taken():
            self.history.add(self.loop.time(), "nobody" if process is None else process.name, SavepointTaken(taken))

    # --- who there is -----------------------------------------------------------------------------------------------

    @property
    def job_managers(self) -> list[str]:
        """Names."""
        return [f"jm-{number}" for number in range(1, self.shape.job_managers + 1)]

    @property
    def rest_addresses(self) -> list[str]:
        """REST of all JobManagers."""
        return [f"{host}:{REST_PORT}" for host in self.job_managers]

    @property
    def job_masters(self) -> list[str]:
        """Names."""
        return [f"master-{number}" for number in range(1, self.shape.job_masters + 1)]

    @property
    def task_managers(self) -> list[str]:
        """Names, of those that a driver has started too."""
        return [*self.standing_task_managers, *self.workers.names]

    @property
    def standing_task_managers(self) -> list[str]:
        """Names of those that no driver has started."""
        return [f"tm-{number}" for number in range(1, self.shape.task_managers + 1)]

    @property
    def names(self) -> list[str]:
        """Every process of the cluster."""
        return [HOST, *self.job_managers, *self.job_masters, *self.task_managers]

    def machine(self, name: str) -> SlotMachine:
        """The slots of a TaskManager's host."""
        if name not in self._machines:
            entropy = self.entropy.child(f"slots/{name}")
            made = self._machines[name] = SlotMachine(self.loop, name, self.programs, self.history, entropy)
            if self.shape.has_slow_host and name == self.task_managers[0]:
                made.slowness = SLOWNESS
        return self._machines[name]

    def is_running(self, name: str) -> bool:
        """Neither dead nor frozen."""
        process = self.processes.get(name)
        return process is not None and process.life is Life.RUNNING

    def is_ready(self, name: str) -> bool:
        """Has its present life said that it serves?"""
        return (name, self._lives.get(name, 0)) in self.ready

    def leader(self) -> str | None:
        """The JobManager that etcd says leads, by its name."""
        oldest = min(self.etcd_state.everything(self.keys.leaders), key=lambda kv: kv.create_revision, default=None)
        if oldest is None:
            return None
        return next((name for name in self.job_managers if f'"{name}:'.encode() in oldest.value), None)

    # --- lives ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start every process, not quite at the same time."""
        for name in self.names:
            if name == HOST:
                self.start_process(name)
            else:
                self.loop.outside_later(self.entropy.uniform(0.0, 0.5), self.start_process, name)

    def start_process(self, name: str) -> None:
        """A new life of a process, at the same address. A worker that has gone is started by nobody."""
        if name.startswith(WORKER_ID_PREFIX) and name not in self.workers:
            return
        number = self._lives[name] = self._lives.get(name, 0) + 1
        process = self.processes[name] = SimulatedProcess(self.loop, name, number)
        self._record(name, ProcessEvent(STARTS))
        if name == HOST:
            process.post(EtcdServer, self.network, self.etcd_state, process)
        else:
            _ = process.start(f"{name}/main", self._main(name, number))

    async def _main(self, name: str, number: int) -> None:
        entropy = self.entropy.child(f"{name}/{number}")
        context = self._context(name, number, entropy)
        main = asyncio.current_task()
        assert main is not None
        self._running[name] = context, main
        try:
            await self._entry_point(name, entropy).run(context)
        except Exception as error:  # noqa: BLE001 - as the frame of a process: its end is told
            cause = _cause(error)
            # A process that comes up while etcd is away says so and ends; its supervisor tries again.
            is_failure = self.is_ready(name) or not isinstance(cause, RetryableError)
            if isinstance(cause, NewLifeError) and (name in self._once_cut_off or (name, number) in self._frozen_early):
                is_failure = False  # who cannot be reached may be declared dead, and begins anew
            if isinstance(cause, NewLifeError) and name in self.workers:
                self.workers.begins_anew(name)
            self._ended(name, f"{FAILED}: {type(cause).__name__}: {cause}", is_failure=is_failure)
        except asyncio.CancelledError:
            self._ended(name, STOPPED, is_failure=False)
        else:
            self._ended(name, "has ended", is_failure=True)

    def _ended(self, name: str, how: str, *, is_failure: bool) -> None:
        if is_failure:
            self.failures.append(f"{name} {how}")
        self._record(name, ProcessEvent(how, is_failure))
        # Whoever supervises it starts it again.
        self.loop.outside_later(1.0, self._restart_ended, name, self._lives[name])

    def _restart_ended(self, name: str, number: int) -> None:
        if self._lives[name] == number:
            if self.processes[name].life is not Life.DEAD:
                self._bury(name)
            self.start_process(name)

    def _entry_point(self, name: str, entropy: SeededEntropy) -> ClusterProcess:
        if name in self.job_managers:
            return ClusterEntrypoint(
                lambda context, settings, sign_in: SimulatedRest(
                    self.network, self.history, context, settings, sign_in
                ),
                self._guard_dialler,
                make_driver=self._make_driver,
            )
        if name in self.job_masters:
            return JobMasterEntryPoint(_Load)
        machine = self.machine(name)
        beside = SimulatedProcess(self.loop, name, self._lives[name])
        earlier = self._lives_guarded.setdefault(name, [])
        self._reap_leftovers(name, machine)
        guard = self._guards[name] = SimulatedGuard(self.network, beside, entropy.hex_id(), earlier)
        earlier.append(guard)
        return TaskManagerProcess(
            guard,
            lambda _settings, _spark, clock, _guard, _reaper: SimulatedSlotPool(machine, clock),
            lambda _guard: SimulatedGuardConnection(machine),
            _guard_is_there,
        )

    def _make_driver(
        self, _context: ProcessContext, kind: DaemonKind, _options: Sequence[str], _address: str
    ) -> SimulatedDriver | None:
        return SimulatedDriver(self.workers) if self.shape.has_driver and kind is TASKMANAGER else None

    def _reap_leftovers(self, name: str, machine: SlotMachine) -> None:
        """What the guards of this life do before it begins."""
        machine.reap_leftovers()
        for guard in self._lives_guarded.get(name, ()):
            guard.end()

    def _guard_dialler(self, configuration: Configuration) -> GuardDialler:
        real = guard_dialler(configuration)
        return replace(real, dial=GuardSockets(self.network).dial)

    def _context(self, name: str, number: int, entropy: SeededEntropy) -> ProcessContext:
        offset = int(self.entropy.child(f"clock/{name}").uniform(-2000, 2000))

        def make_rpc(settings: RpcSettings, clock: Clock) -> SimulatedRpcService:
            return SimulatedRpcService(self.network, self.history, settings, clock)

        def ready() -> None:
            self.ready.add((name, number))
            self._record(name, ProcessEvent("is ready"))

        return _Context(
            self._configuration(name),
            Layout(self._run, self._run, self._run),
            {},
            make_rpc=make_rpc,
            clock=ProcessClock(self.loop, offset),
            boot_clock=ProcessClock(self.loop, offset),
            entropy=entropy,
            store=SimulatedKeyValueStore(self.network, entropy.child("etcd")),
            lease_keeper=self._keeper(name, number, entropy.child("keeper")),
            on_ready=ready,
        )

    def _keeper(self, name: str, number: int, entropy: SeededEntropy) -> LeaseKeeper:
        if not self.shape.has_keepers or name in self.task_managers:
            return NO_KEEPER
        settings = high_availability_settings(self._configuration(name), Layout(self._run, self._run, self._run))
        self._keepers[name] = SimulatedKeeper(
            self.processes[name],
            SimulatedProcess(self.loop, name, number),
            lambda: SimulatedKeyValueStore(self.network, entropy),
            ProcessClock(self.loop, 0),
            ttl=settings.lease_ttl,
            timeout=settings.timeout,
        )
        return self._keepers[name]

    def _configuration(self, name: str) -> Configuration:
        if name in self._configurations:
            return self._configurations[name]
        dynamic = {
            "high-availability.type": "etcd",
            "high-availability.etcd.endpoints": ADDRESS,
            "high-availability.etcd.username": "simulated",
            "high-availability.etcd.password": "simulated",
            "high-availability.storageDir": URL,
            "jobmanager.jobmaster.single.enable": "true" if self.shape.job_masters else "false",
            "jobmanager.rpc.address": name,
            "jobmanager.rpc.port": str(JOB_MANAGER_PORT),
            "jobmanager.jobmaster.rpc.address": name,
            "jobmanager.jobmaster.rpc.port": str(JOB_MASTER_PORT),
            "taskmanager.host": name,
            "taskmanager.rpc.port": "6125",
            "taskmanager.resource-id": name,
            "taskmanager.numberOfTaskSlots": str(self.shape.slots),
            "taskmanager.spark.enabled": "false",
            "execution.checkpointing.interval": "2 s",
            "execution.checkpointing.timeout": "8 s",
            "execution.checkpointing.tolerable-failed-checkpoints": "1000",
            "execution.checkpointing.num-retained": "2",
            "restart-strategy.type": "exponential-delay",
            "restart-strategy.exponential-delay.attempts-before-reset-backoff": str(RESTARTS),
            "restart-strategy.exponential-delay.max-backoff": "2 s",
            "taskmanager.isolation-timeout": f"{self.shape.isolation_seconds} s",
            "rest.address": name,
            "rest.port": str(REST_PORT),
            "security.authentication": "none",
        }
        if self.shape.has_queues:
            dynamic |= {"slotmanager.queue.q0.weight": "3", "slotmanager.queue.q1.min-slots": "1"}
            dynamic |= {
                "slotmanager.queue.q2.max-running-jobs": "1",
                "slotmanager.preemption": "true",
                "slotmanager.preemption.timeout": "0 ms",
            }
        if self.shape.has_driver:
            dynamic |= worker_options(self.shape)
        if name in self.workers:
            dynamic["taskmanager.worker-id"] = name
        if self.shape.is_reactive:
            dynamic |= {
                "scheduler-mode": "reactive",
                "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "2 s",
            }
        made = load(None, environment={}, dynamic=[f"{key}={value}" for key, value in dynamic.items()])
        return self._configurations.setdefault(name, made)

    # --- fate -------------------------------------------------------------------------------------------------------

    def crash(self, name: str) -> None:
        """SIGKILL: nothing of it runs any more, and the kernel closes its sockets."""
        self._record(name, Fault(KILLED))
        self._bury(name)

    def crash_template(self, name: str) -> None:
        """SIGKILL of a TaskManager's template process: its slot processes die with it."""
        self._record(name, Fault(TEMPLATE_KILLED))
        self.machine(name).template_died()

    def crash_guards(self, name: str) -> None:
        """SIGKILL of a TaskManager's main process and of both its guards, at once (R30)."""
        if name in self.workers:
            self.workers.keep(name)
        self._record(name, Fault(KILLED))
        self._record(name, Fault("has no guard any more"))
        process = self.processes[name]
        process.kill()
        self.network.process_died(process)
        guard = self._guards.pop(name, None)
        if guard is not None:
            guard.kill()
        self.machine(name).guards_died()

    def terminate(self, name: str) -> None:
        """SIGTERM: it hands over what it has, then stops in order, cut short after a while; it is started again."""
        running = self._running.pop(name, None)
        if running is None:
            return  # it stops already
        self._record(name, Fault(TERMINATED))
        process = self.processes[name]
        _ = process.start(f"{name}/stop", self._stop(name, process, *running))

    def stop_at_once(self, name: str) -> None:
        """A second SIGTERM: it does not wait for its tasks."""
        _, main = self._running.pop(name)
        self._record(name, Fault("is told to stop at once"))
        self.processes[name].post(main.cancel)

    async def _stop(
        self, name: str, process: SimulatedProcess, context: ProcessContext, main: asyncio.Task[Any]
    ) -> None:
        told = StopSignal(lambda: True)
        told.ask(signal.SIGTERM)
        if await leave(main, told, context.leaving):
            self._record(name, ProcessEvent("has handed over all that it had"))
        main.cancel()
        self.loop.outside_later(STOP_DEADLINE, self._cut_short, name, process, main)

    def _cut_short(self, name: str, process: SimulatedProcess, main: asyncio.Task[Any]) -> None:
        if process.life is Life.FROZEN:
            self.loop.outside_later(STOP_DEADLINE, self._cut_short, name, process, main)
        elif process.life is Life.RUNNING and not main.done():
            self._record(name, Fault("has not stopped in time"))
            self._bury(name)
            self.loop.outside_later(1.0, self._restart_ended, name, self._lives[name])

    def _bury(self, name: str) -> None:
        process = self.processes[name]
        process.kill()
        self.network.process_died(process)
        if name in self._keepers:
            self._keepers.pop(name).end()
        if name in self.task_managers:
            guard = self._guards.pop(name, None)
            self.machine(name).main_process_died(guard.end if guard is not None else lambda: None)
        if name in self.workers:
            self.workers.process_died(name)

    def freeze(self, name: str, *, is_stuck: bool = False) -> None:
        """SIGSTOP of the main process; slots go on. `is_stuck`: its loop alone stands still, and it looks alive."""
        self._record(name, Fault(FROZEN))
        if not self.is_ready(name):
            self._frozen_early.add((name, self._lives[name]))
        if is_stuck:
            self._record(name, Fault("is stuck"))
        self.processes[name].freeze(is_stuck=is_stuck)

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        self._record(name, Fault(AWAKE))
        self.processes[name].thaw()

    def deafen(self, name: str, seconds: float) -> None:
        """Its gRPC server refuses for a while, as one that is stopping does, and the process lives."""
        address = f"{name}:{JOB_MANAGER_PORT if name in self.job_managers else JOB_MASTER_PORT}"
        if self.network.deafen(address):
            self._record(name, Fault("listens no more"))
            self.loop.outside_later(seconds, self.network.listen_again, address)

    def partition(self, source: str, target: str) -> None:
        """Nothing passes from one to the other; the way back is not touched."""
        self._once_cut_off |= {source, target}
        self._record(source, Fault(f"{CUT_OFF} {target}"))
        self.network.block(source, target)

    def heal(self, source: str, target: str) -> None:
        """It passes again."""
        self._record(source, Fault(f"{REACHED} {target} again"))
        self.network.heal(source, target)

    def _record(self, name: str, what: Fault | ProcessEvent) -> None:
        logger.info("%s %s", name, what)
        self.history.add(self.loop.time(), name, what)

    # --- jobs -------------------------------------------------------------------------------------------------------

    def plan(self, job: PlannedJob) -> None:
        """A client with a job."""
        for vertex_id, code in job.programs.items():
            self.programs.by_vertex[(job.job_id, vertex_id)] = code
        if any(code.files for code in job.programs.values()):
            SimulatedFileSystem.task_writes(f"{OUTPUTS}/{job.job_id}/{OLD_FILE}", b"of an earlier job")
        name = f"client-{len(self.clients) + 1}"
        process = self.processes[name] = SimulatedProcess(self.loop, name)

        def make() -> None:
            client = Client(self.network, self.history, self.rest_addresses, job, self.entropy.child(name))
            client.has_queues = self.shape.has_queues
            self.clients.append(client)
            client.task = process.start(name, client.run())

        process.context.copy().run(make)

    def left_over(self) -> Iterator[str]:
        """What a cluster at rest must not have: user code, jobs that are not cleaned, pointers to nothing."""
        for name in self._machines:
            yield from (f"{attempt_id} still runs on {name}" for attempt_id in self.machine(name).alive)
        for kv in self.etcd_state.everything(self.keys.jobs):
            yield f"{kv.key} is still there"
        for kv in self.etcd_state.everything(self.keys.all_done):
            done = decode_record(DoneRecord, kv.value, key=kv.key)
            is_lost = done.archive_key in SimulatedFileSystem.lost
            if done.archive_key and not is_lost and not SimulatedFileSystem.has(done.archive_key):
                yield f"{kv.key} refers to {done.archive_key}, which is not in storage (R19)"

    @property
    def unfinished(self) -> list[Client]:
        """Clients that still wait."""
        return [client for client in self.clients if client.ended is None]


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def until(condition: Callable[[], bool], *, within: float, every: float = 0.05) -> bool:
    """Let time pass until something holds; False when it does not come about."""
    try:
        async with asyncio.timeout(within):
            while not condition():
                await asyncio.sleep(every)
    except TimeoutError:
        return False
    return True

"""The TaskManager's main process: the parts that a TaskManagerRunner starts and stops, and what happens at its end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from runtime.aio.blocking import BlockingIo
from runtime.blob.client import BlobClientSettings, BlobSharedClient, Patience
from runtime.blob.store import BlobStore
from runtime.common.clock import Clock
from runtime.common.errors import PermanentError
from runtime.common.ids import Incarnation
from runtime.config.configuration import Configuration
from runtime.config.options import high_availability as ha
from runtime.config.options import taskmanager as tm
from runtime.config.options.jobmanager import JOBMANAGER_ADDRESS, JOBMANAGER_PORT
from runtime.config.spark_memory import has_own_jvms
from runtime.entrypoint.process import Leaving, NewLifeError, ProcessContext, first_cause
from runtime.entrypoint.process_gateway import OwnProcess, Parts, Stacks
from runtime.entrypoint.process_options import (
    guard_dialler,
    high_availability_settings,
    rpc_settings,
    seconds,
)
from runtime.entrypoint.slot_users import (
    not_enforced,
    shared_account,
    shown_directories,
    slot_users,
    spark_accounts,
)
from runtime.entrypoint.storage import open_blob_store
from runtime.entrypoint.task_manager_options import (
    attempt_logs,
    connect_environment,
    exchange_directory,
    registration_of,
    runner_settings,
    slot_settings,
    spark_settings,
    task_environment,
    token_receivers,
    ui_address,
)
from runtime.gateways.resource_manager import RegisterTaskManager, spark_offer
from runtime.highavailability.services import HighAvailabilityServices, create
from runtime.rpc.service import RpcService
from runtime.system.linux import join_empty_keyring
from runtime.taskexecutor.connections.contact import DeregisteredError
from runtime.taskexecutor.containment.cgroups import remove_own
from runtime.taskexecutor.containment.users import SlotUsers
from runtime.taskexecutor.directories.job_users import JobUsers
from runtime.taskexecutor.directories.working_directory import WorkingDirectory
from runtime.taskexecutor.guard.channel import GuardChannel
from runtime.taskexecutor.guard.connection import GuardConnection
from runtime.taskexecutor.runner import EarlierLives, StartableSlotPool, TaskManagerRunner
from runtime.taskexecutor.slots.pool import SlotProcessPool
from runtime.taskexecutor.slots.work import OrphanReaper, ProcessGuard, SlotSettings
from runtime.taskexecutor.spark.account import SparkAccount
from runtime.taskexecutor.spark.environment_factory import SparkEnvironmentFactory
from runtime.taskexecutor.spark.environment_process import ProcessSparkEnvironment
from runtime.taskexecutor.spark.environments import DefaultEnvironment, SparkEnvironments
from runtime.taskexecutor.spark.without_jvm import NoSharedJvm
from runtime.taskexecutor.spark_protocol.settings import SparkSettings
from runtime.taskexecutor.storage.directory_tree import local_path
from runtime.taskexecutor.task_environment import TaskEnvironment

logger = logging.getLogger(__name__)

_END_STATED = 300.0
"""Seconds for which the guard states the TaskManager's end: longer than leaders and etcd are usually away. The next
start on this host states it again."""
_END_STATED_IN_MEMORY = 60.0
"""The same without etcd: a JobManager asks at once, or it was restarted and has forgotten the TaskManager."""

MakePool = Callable[
    [SlotSettings, SparkEnvironments | None, Clock, ProcessGuard | None, OrphanReaper], StartableSlotPool
]
"""Makes the slots of a TaskManager."""

CheckGuard = Callable[[RegisterTaskManager, Configuration], Awaitable[None]]
"""Checks that the guard is reached at the address that others are told."""


class GuardError(PermanentError):
    """The guard could not open its liveness socket."""


async def _check_guard(registration: RegisterTaskManager, configuration: Configuration) -> None:
    """Log a warning when the guard's address does not lead to the guard: then no death could be proved there."""
    address, incarnation = registration.guard_address, registration.incarnation
    if not await guard_dialler(configuration).is_guard_of(address, incarnation, registration.boot_id):
        logger.warning(
            "the guard of this TaskManager is not reached at %s from here (taskmanager.host, taskmanager.bind-host): "
            "if other processes do not reach it either, only timeouts will tell them that this TaskManager is dead",
            address,
        )


def _connect(guard: GuardChannel) -> GuardConnection:
    return GuardConnection(guard.control)


class TaskManagerProcess:
    """Implements `ClusterProcess`. Without `states_end` the guard does not state its end: in a local cluster, the
    JobManager ends with it."""

    def __init__(
        self,
        guard: GuardChannel,
        make_pool: MakePool = SlotProcessPool.of_task_manager,
        connect: Callable[[GuardChannel], GuardConnection] = _connect,
        check_guard: CheckGuard = _check_guard,
        *,
        states_end: bool = True,
    ) -> None:
        self._guard = guard
        self._states_end = states_end
        self._check_guard = check_guard
        self._make_pool = make_pool
        self._connect = connect

    async def run(self, context: ProcessContext) -> None:
        """Serve until cancelled."""
        context.incarnation = Incarnation(self._guard.incarnation)
        registration = registration_of(context, _listening_guard(self._guard, context.configuration))
        await self._check_guard(registration, context.configuration)
        io = BlockingIo()
        try:
            guard = self._connect(self._guard)
            runner = _make_runner(context, registration, guard, self._guard, io, self._make_pool, self._states_end)
            context.leaving = Leaving(runner.drain, runner.drain_time_max)
            await runner.run(lambda registered: context.ready(_facts(registered)))
        except* DeregisteredError as errors:
            raise NewLifeError(str(first_cause(errors))) from errors
        finally:
            io.close()
            if context.configuration.get(tm.SLOT_CGROUPS) != "off":
                remove_own()


def _listening_guard(guard: GuardChannel, configuration: Configuration) -> str:
    """The address of the guard's liveness socket."""
    try:
        port = guard.listen(configuration.get(tm.TASKMANAGER_BIND_HOST))
    except OSError as error:
        message = f"the TaskManager's guard cannot listen (taskmanager.bind-host): {error}"
        raise GuardError(message) from error
    return f"{configuration.get(tm.TASKMANAGER_HOST)}:{port}"


def _facts(registration: RegisterTaskManager) -> dict[str, str]:
    """The content of the ready file."""
    return {
        "address": registration.address,
        "guard": registration.guard_address,
        "id": registration.task_manager_id,
        "slots": str(registration.slots),
    }


def _make_runner(
    context: ProcessContext,
    registration: RegisterTaskManager,
    guard: GuardConnection,
    lives: EarlierLives,
    io: BlockingIo,
    make_pool: MakePool,
    states_end: bool,  # noqa: FBT001 - as the process was made
) -> TaskManagerRunner:
    configuration, layout = context.configuration, context.layout
    directory = WorkingDirectory(layout.work, context.incarnation)
    logs = attempt_logs(context, registration)
    environment = task_environment(configuration).naming_credentials(directory.credentials)
    numbers = slot_users(configuration, registration.slots)
    accounts = () if numbers is None else spark_accounts(configuration, numbers, environment.umask)
    users = None if numbers is None else _job_users(context, numbers, accounts, directory, logs.directory)
    spark = None
    if registration.has_spark:
        settings = replace(
            spark_settings(context, directory, numbers, accounts),
            ui_address=ui_address(configuration, registration.task_manager_id),
        )
        make = partial(_spark, guard=guard, environment=environment, jars=directory.jars)
        spark = _environments(context, registration, settings, make, None if numbers is None else accounts, environment)
    store = open_blob_store(configuration, layout, io, context.clock, context.entropy)
    services = _services(context, store)
    rpc = _transport(context)

    def make_blobs(blob_address: Callable[[], str | None]) -> BlobSharedClient:
        settings = BlobClientSettings(directory.blobs, configuration.get(ha.BLOB_CACHE_SIZE), Patience())
        return BlobSharedClient(settings, store, rpc, blob_address, io, context.entropy)

    slots = slot_settings(
        configuration,
        registration,
        environment,
        checkpoint_directory=context.layout.checkpoints_url(configuration),
    )
    controllers = [] if slots.cgroups is None else slots.cgroups.controllers
    registration = replace(registration, not_enforced=not_enforced(numbers, controllers))
    stated_for = _stated_for(services) if states_end else 0.0
    pool = make_pool(slots, spark, context.clock, None if services is None else guard, guard)
    return TaskManagerRunner(
        runner_settings(context, logs.directory, stated_for),
        registration,
        rpc=rpc,
        leader_address=f"{configuration.get(JOBMANAGER_ADDRESS)}:{configuration.get(JOBMANAGER_PORT)}",
        services=services,
        guard=guard,
        lives=lives,
        # Without durable services there are no fences, so the guard need not mark exclusive tasks.
        pool=pool,
        spark=spark,
        make_blobs=make_blobs,
        exchange=exchange_directory(context, has_secret_names=users is not None),
        directory=directory,
        logs=logs,
        tokens=token_receivers(configuration, directory, users),
        clock=context.clock,
        boot_clock=context.boot_clock,
        entropy=context.entropy,
        users=users,
        own_process=OwnProcess.of(context.environment, _stacks(pool, spark), _parts(pool, spark)),
        metrics=context.reporting.registry,
        checkpoints_url=context.layout.checkpoints_url(configuration),
    )


def _environments(
    context: ProcessContext,
    registration: RegisterTaskManager,
    settings: SparkSettings,
    make: Callable[[SparkSettings, SparkAccount | None], ProcessSparkEnvironment],
    accounts: Sequence[SparkAccount] | None,
    environment: TaskEnvironment,
) -> SparkEnvironments:
    """The Spark environments. `accounts`: None where slots are no users of their own."""
    configuration = context.configuration
    of_shared, of_jobs = shared_account(configuration, accounts or ())
    shared: DefaultEnvironment
    if (connect := connect_environment(configuration, registration)) is not None:
        shared = connect
    else:
        shared = NoSharedJvm(settings, environment) if has_own_jvms(configuration) else make(settings, of_shared)
    factory = SparkEnvironmentFactory(settings, make, None if accounts is None else of_jobs)
    idle = seconds(configuration, tm.SPARK_ENVIRONMENT_IDLE)
    offer = spark_offer(registration)
    return SparkEnvironments(shared, factory.make, offer, context.clock, idle_timeout=idle, forget=factory.forget)


def _stacks(pool: StartableSlotPool, spark: SparkEnvironments | None) -> Callable[[], Stacks]:
    """The stacks of the processes that a TaskManager has started."""

    async def stacks() -> Stacks:
        async for one in pool.stacks():
            yield one
        if spark is not None:
            async for one in spark.stacks():
                yield one

    return stacks


def _parts(pool: StartableSlotPool, spark: SparkEnvironments | None) -> Callable[[], Awaitable[Parts]]:
    """Slots and JVMs of a TaskManager."""

    async def parts() -> Parts:
        return pool.figures(), () if spark is None else await spark.jvm_figures()

    return parts


def _transport(context: ProcessContext) -> RpcService:
    settings = rpc_settings(
        context.configuration,
        context.layout,
        context.incarnation,
        address=tm.TASKMANAGER_HOST,
        bind_host=tm.TASKMANAGER_BIND_HOST,
        port=tm.TASKMANAGER_PORT,
    )
    return context.make_rpc(settings, context.clock)


def _spark(
    settings: SparkSettings,
    account: SparkAccount | None,
    *,
    guard: GuardConnection,
    environment: TaskEnvironment,
    jars: Path,
) -> ProcessSparkEnvironment:
    return ProcessSparkEnvironment(settings, guard.note_spark, guard.sweep, environment, account, jars)


def _stated_for(services: HighAvailabilityServices | None) -> float:
    return _END_STATED if services is not None else _END_STATED_IN_MEMORY


def _job_users(
    context: ProcessContext,
    users: SlotUsers,
    accounts: Sequence[SparkAccount],
    directory: WorkingDirectory,
    logs: Path,
) -> JobUsers:
    """R50: users of jobs. Before user code starts, this process leaves the keyring of the user who has started it."""
    join_empty_keyring()
    exchange = local_path(context.layout.exchange_url(context.configuration))
    shown = shown_directories([directory.jobs, logs], exchange, users, directory.spark)
    return JobUsers(users, context.layout.run, shown, directory.credentials, accounts)


def _services(context: ProcessContext, store: BlobStore) -> HighAvailabilityServices | None:
    """The durable state; None when jobs live in the JobManager's memory."""
    settings = high_availability_settings(context.configuration, context.layout)
    if settings.etcd is None:
        return None
    return create(
        settings,
        objects=store,
        clock=context.clock,
        boot_clock=context.boot_clock,
        entropy=context.entropy,
        store=context.store,
        metrics=context.reporting.registry,
    )

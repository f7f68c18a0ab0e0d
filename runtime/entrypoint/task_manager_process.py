"""The TaskManager's main process: options to settings, and the parts that a TaskManagerRunner starts and stops."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from runtime.blob.blocking import BlockingIo
from runtime.blob.client import BlobClientSettings, BlobSharedClient, Patience
from runtime.blob.store import BlobStore
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import InvalidInputError, PermanentError
from runtime.common.ids import Incarnation
from runtime.common.version import PROTOCOL_VERSION, VERSION
from runtime.config.configuration import Configuration
from runtime.config.options import high_availability as ha
from runtime.config.options import taskmanager as tm
from runtime.config.options.jobmanager import JOBMANAGER_ADDRESS, JOBMANAGER_PORT
from runtime.entrypoint.control.daemon import LOG_FILE_VARIABLE, RESOURCE_ID_FILE_VARIABLE
from runtime.entrypoint.option_mapping import (
    guard_dialler,
    heartbeat_timing,
    high_availability_settings,
    rpc_settings,
    seconds,
)
from runtime.entrypoint.process import Leaving, NewLifeError, ProcessContext, first_cause
from runtime.entrypoint.resource_id import kept_resource_id
from runtime.entrypoint.slot_users import (
    NOT_ENFORCED,
    beside_slot_users,
    not_enforced,
    shown_directories,
    slot_users,
    spark_account,
)
from runtime.entrypoint.storage import open_blob_store
from runtime.gateways.resource_manager import RegisterTaskManager
from runtime.gateways.task import ResourceProfile
from runtime.highavailability.services import HighAvailabilityServices, create
from runtime.security.token_providers import load_receivers
from runtime.system.linux import join_empty_keyring
from runtime.taskexecutor.attempt_logs.log_directory import AttemptLogs
from runtime.taskexecutor.attempt_logs.log_retention import LogRetention
from runtime.taskexecutor.connections.contact import ContactSettings, DeregisteredError
from runtime.taskexecutor.containment.cgroups import SlotCgroups, SlotLimits, remove_own
from runtime.taskexecutor.containment.users import SlotUsers
from runtime.taskexecutor.credentials.delegation_tokens import DelegationTokenReceiverRepository
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory
from runtime.taskexecutor.directories.exchange_identity import exchange_identity
from runtime.taskexecutor.directories.job_users import JobUsers
from runtime.taskexecutor.directories.working_directory import WorkingDirectory
from runtime.taskexecutor.guard.channel import GuardChannel
from runtime.taskexecutor.guard.connection import GuardConnection
from runtime.taskexecutor.guard.records import boot_id
from runtime.taskexecutor.runner import EarlierLives, RunnerSettings, StartableSlotPool, TaskManagerRunner
from runtime.taskexecutor.settings import ConnectionSettings, TaskExecutorSettings
from runtime.taskexecutor.slots.pool import SlotProcessPool
from runtime.taskexecutor.slots.work import OrphanReaper, ProcessGuard, SlotSettings
from runtime.taskexecutor.spark.account import SparkAccount
from runtime.taskexecutor.spark.environment_process import ProcessSparkEnvironment
from runtime.taskexecutor.spark_protocol.installed_spark import pyspark_version
from runtime.taskexecutor.spark_protocol.settings import SparkSettings, effective_conf
from runtime.taskexecutor.storage.directory_tree import local_path
from runtime.taskexecutor.task_environment import TaskEnvironment
from runtime.taskexecutor.unpacking.limits import UnpackLimits

logger = logging.getLogger(__name__)

SPARK_MASTER = "spark.master"
DEFAULT_MASTER = "local[*]"
_ENDED_JOBS_INTERVALS = 10
"""After so many heartbeat intervals jobs that nobody comes for are looked up again (R16)."""

_END_STATED = 300.0
"""Seconds: longer than leaders and etcd are usually away. The next start here says it as well."""
_END_STATED_IN_MEMORY = 60.0
"""A JobManager without etcd that does not ask at once has forgotten."""

MakePool = Callable[
    [SlotSettings, ProcessSparkEnvironment | None, Clock, Entropy, ProcessGuard | None, OrphanReaper], StartableSlotPool
]
"""Makes the slots of a TaskManager."""

CheckGuard = Callable[[RegisterTaskManager, Configuration], Awaitable[None]]
"""Looks whether the guard is reached where others will look for it."""


class GuardError(PermanentError):
    """The guard could not open its liveness socket."""


async def _check_guard(registration: RegisterTaskManager, configuration: Configuration) -> None:
    """An address that does not lead to the guard proves no death: said now, when it can still be mended."""
    address, incarnation = registration.guard_address, registration.incarnation
    if not await guard_dialler(configuration).is_guard_of(address, incarnation, registration.boot_id):
        logger.warning(
            "the guard of this TaskManager is not reached at %s from here (taskmanager.host, taskmanager.bind-host): "
            "should it be so for the others too, they find out that it has died by timeouts only",
            address,
        )


def _connect(guard: GuardChannel) -> GuardConnection:
    return GuardConnection(guard.control)


class TaskManagerProcess:
    """Implements `ClusterProcess`. Without `states_end` its end is nobody's business: who would ask ends with it."""

    def __init__(
        self,
        guard: GuardChannel,
        make_pool: MakePool = SlotProcessPool,
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
        registration = _registration(context, _listening_guard(self._guard, context.configuration))
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
    """What the start script shows."""
    return {
        "address": registration.address,
        "guard": registration.guard_address,
        "id": registration.task_manager_id,
        "slots": str(registration.slots),
    }


def slots_of(configuration: Configuration) -> int:
    """`taskmanager.numberOfTaskSlots`, by default the cores of this process."""
    return configuration.get(tm.SLOTS) or _cores()


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _registration(context: ProcessContext, guard_address: str) -> RegisterTaskManager:
    configuration = context.configuration
    slots = slots_of(configuration)
    memory_bytes = configuration.get(tm.TASK_MEMORY)
    has_spark = configuration.get(tm.SPARK_ENABLED)
    offered = effective_conf(_spark_settings(context, Path())) if has_spark else {}
    host = configuration.get(tm.TASKMANAGER_HOST)
    id_file = context.environment.get(RESOURCE_ID_FILE_VARIABLE)
    return RegisterTaskManager(
        incarnation=context.incarnation,
        task_manager_id=configuration.get(tm.TASKMANAGER_RESOURCE_ID)
        or kept_resource_id(Path(id_file) if id_file else None, host, context.incarnation),
        address="",
        guard_address=guard_address,
        boot_id=boot_id(),
        version=VERSION,
        protocol_version=PROTOCOL_VERSION,
        slots=slots,
        slot_profile=ResourceProfile(
            cpu_cores=_cores() / slots,
            memory_bytes=memory_bytes // slots,
            spark_profile=configuration.get(tm.SPARK_PROFILE),
        ),
        has_spark=has_spark,
        spark_conf=json.dumps(offered, sort_keys=True).encode(),
        cpu_cores=_cores(),
        memory_bytes=memory_bytes,
        exchange_id=exchange_identity(context.layout.exchange_url(configuration), context.entropy),
        spark_version=pyspark_version() if has_spark else "",
        has_tenants=configuration.get(tm.TENANCY) == "namespace",
    )


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
    logs = _attempt_logs(context, registration)
    environment = _task_environment(configuration).naming_credentials(directory.credentials)
    numbers = slot_users(configuration, registration.slots)
    account = None if numbers is None else spark_account(configuration, numbers, environment.umask)
    users = None if numbers is None else _job_users(context, numbers, account, directory, logs.directory)
    spark = None
    if registration.has_spark:
        settings = _settings_of_spark(context, directory, numbers, account)
        spark = ProcessSparkEnvironment(settings, guard.note_spark, guard.sweep, environment, account)
    store = open_blob_store(configuration, layout, io, context.clock, context.entropy)
    services = _services(context, store)
    rpc = context.make_rpc(
        rpc_settings(
            configuration,
            layout,
            context.incarnation,
            address=tm.TASKMANAGER_HOST,
            bind_host=tm.TASKMANAGER_BIND_HOST,
            port=tm.TASKMANAGER_PORT,
        ),
        context.clock,
    )

    def make_blobs(blob_address: Callable[[], str | None]) -> BlobSharedClient:
        settings = BlobClientSettings(directory.blobs, configuration.get(ha.BLOB_CACHE_SIZE), Patience())
        return BlobSharedClient(settings, store, rpc, blob_address, io, context.entropy)

    slots = _slot_settings(configuration, registration, environment)
    controllers = [] if slots.cgroups is None else slots.cgroups.controllers
    registration = replace(registration, not_enforced=not_enforced(numbers, controllers))
    stated_for = _stated_for(services) if states_end else 0.0
    return TaskManagerRunner(
        _runner_settings(context, logs.directory, stated_for),
        registration,
        rpc=rpc,
        leader_address=f"{configuration.get(JOBMANAGER_ADDRESS)}:{configuration.get(JOBMANAGER_PORT)}",
        services=services,
        guard=guard,
        lives=lives,
        # Without durable services nobody holds a deadline: nothing is worth marking.
        pool=make_pool(
            slots,
            spark,
            context.clock,
            context.entropy,
            None if services is None else guard,
            guard,
        ),
        spark=spark,
        make_blobs=make_blobs,
        exchange=_exchange(context, has_secret_names=users is not None),
        directory=directory,
        logs=logs,
        tokens=_tokens(configuration, directory, users),
        clock=context.clock,
        boot_clock=context.boot_clock,
        entropy=context.entropy,
        users=users,
    )


def _stated_for(services: HighAvailabilityServices | None) -> float:
    return _END_STATED if services is not None else _END_STATED_IN_MEMORY


def _settings_of_spark(
    context: ProcessContext, directory: WorkingDirectory, users: SlotUsers | None, account: SparkAccount | None
) -> SparkSettings:
    """What is open is told."""
    settings = _spark_settings(context, directory.spark)
    if users is not None and account is not None:
        settings = beside_slot_users(settings, users, account)
    if context.configuration.get(tm.SPARK_ALLOW_UNAUTHENTICATED):
        logger.warning("%s", _open_spark(settings))
    return settings


def _exchange(context: ProcessContext, *, has_secret_names: bool) -> ExchangeDirectory:
    url = context.layout.exchange_url(context.configuration)
    return ExchangeDirectory(url, context.incarnation, has_secret_names=has_secret_names)


def _tokens(
    configuration: Configuration, directory: WorkingDirectory, users: JobUsers | None
) -> DelegationTokenReceiverRepository:
    group = None if users is None else users.shared_gid
    return DelegationTokenReceiverRepository(
        directory.credentials, load_receivers(configuration.token_providers), group
    )


def _job_users(
    context: ProcessContext, users: SlotUsers, account: SparkAccount | None, directory: WorkingDirectory, logs: Path
) -> JobUsers:
    """R50: whatever runs user code is started by this process after this, and gets no key of who has started it."""
    join_empty_keyring()
    exchange = local_path(context.layout.exchange_url(context.configuration))
    shown = shown_directories([directory.jobs, logs], exchange, users, directory.spark)
    return JobUsers(users, context.layout.run, shown, directory.credentials, account)


def _services(context: ProcessContext, store: BlobStore) -> HighAvailabilityServices | None:
    """None where jobs live in the JobManager's memory: then there is nothing durable to take part in."""
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
    )


def _attempt_logs(context: ProcessContext, registration: RegisterTaskManager) -> AttemptLogs:
    configuration = context.configuration
    retention = LogRetention(
        bytes_max=configuration.get(tm.ATTEMPT_LOG_TOTAL),
        age_max=seconds(configuration, tm.ATTEMPT_LOG_RETENTION),
    )
    return AttemptLogs(context.layout.attempt_logs, registration.task_manager_id, retention)


def _secrets_directory(configuration: Configuration) -> str:
    """Its files may come and go. Raises InvalidInputError when it is not there: no job with a secret would run."""
    directory = configuration.get(tm.SECRETS_DIRECTORY)
    if directory and not Path(directory).is_dir():
        message = f"{tm.SECRETS_DIRECTORY.key}: {directory} is no directory here: make it, or correct the path"
        raise InvalidInputError(message)
    return directory


def _runner_settings(context: ProcessContext, log_directory: Path, end_stated_for: float) -> RunnerSettings:
    configuration = context.configuration
    return RunnerSettings(
        end_stated_for=end_stated_for,
        ended_jobs_period=_ENDED_JOBS_INTERVALS * heartbeat_timing(configuration).interval,
        contact=ContactSettings(
            interval=heartbeat_timing(configuration).interval,
            isolation_timeout=seconds(configuration, tm.ISOLATION_TIMEOUT),
            cancellation_timeout=seconds(configuration, tm.CANCELLATION_TIMEOUT),
        ),
        executor=TaskExecutorSettings(
            log_directory=log_directory,
            secrets_directory=_secrets_directory(configuration),
            slot_timeout=seconds(configuration, tm.SLOT_TIMEOUT),
            registration_timeout=seconds(configuration, tm.REGISTRATION_TIMEOUT),
            owner_timeout=seconds(configuration, tm.JOBMASTER_TIMEOUT),
            drain_timeout=seconds(configuration, tm.DRAIN_TIMEOUT),
            connections=ConnectionSettings(heartbeat=heartbeat_timing(configuration)),
            archives=_unpack_limits(configuration),
        ),
    )


def _unpack_limits(configuration: Configuration) -> UnpackLimits:
    return UnpackLimits(
        bytes_max=configuration.get(tm.ARCHIVES_SIZE),
        entries_max=configuration.get(tm.ARCHIVES_ENTRIES),
        memory_bytes_max=configuration.get(tm.ARCHIVES_MEMORY),
        cpu_seconds_max=math.ceil(seconds(configuration, tm.ARCHIVES_CPU_TIME)),
        timeout=seconds(configuration, tm.ARCHIVES_TIMEOUT),
    )


def _slot_settings(
    configuration: Configuration, registration: RegisterTaskManager, environment: TaskEnvironment
) -> SlotSettings:
    return SlotSettings(
        slots=registration.slots,
        task_manager_id=registration.task_manager_id,
        memory_bytes_max=registration.slot_profile.memory_bytes,
        cancellation_timeout=seconds(configuration, tm.CANCELLATION_TIMEOUT),
        is_reuse_enabled=configuration.get(tm.SLOT_PROCESS_REUSE),
        inline_bytes_max=configuration.get(tm.EXCHANGE_INLINE_MAX),
        log_bytes_max=configuration.get(tm.ATTEMPT_LOG_MAX),
        is_static_conf_fatal=configuration.get(tm.SCRIPT_STATIC_CONF) == "fail",
        spark_cluster=_spark_cluster(configuration) if registration.has_spark else "",
        environment=environment,
        attaches_ahead=configuration.get(tm.SLOT_UIDS) is None,
        cgroups=_slot_cgroups(configuration, registration),
    )


def _slot_cgroups(configuration: Configuration, registration: RegisterTaskManager) -> SlotCgroups | None:
    """R50. Raises InvalidInputError where they are required and cannot be had."""
    wish = configuration.get(tm.SLOT_CGROUPS)
    if wish == "off":
        logger.info("%s", NOT_ENFORCED.format(f"control groups ({tm.SLOT_CGROUPS.key} is off)"))
        return None
    limits = SlotLimits(
        registration.slot_profile.memory_bytes,
        configuration.get(tm.SLOT_CPU_MAX),
        configuration.get(tm.SLOT_PROCESSES_MAX),
    )
    made = SlotCgroups.make(registration.slots, limits)
    refused = "; ".join(f"{controller} ({why})" for controller, why in made.refused.items())
    if refused and wish == "required":
        made.remove()
        message = f"{tm.SLOT_CGROUPS.key}: required, and there are none here for {refused}"
        raise InvalidInputError(message)
    if refused:
        logger.warning("%s", NOT_ENFORCED.format(f"control groups for {refused}"))
    return made


def _task_environment(configuration: Configuration) -> TaskEnvironment:
    further: tuple[str, ...] = configuration.get(tm.ENVIRONMENT_PASSED)
    return TaskEnvironment.of_this_process(further)


def _spark_cluster(configuration: Configuration) -> str:
    """The master whose executors are on other hosts, "" for those in our JVM."""
    master = configuration.spark_conf.get(SPARK_MASTER, DEFAULT_MASTER)
    return "" if master.startswith("local") else master


def _open_spark(settings: SparkSettings) -> str:
    """R44: what somebody has said twice is said once more, at each start."""
    return (
        f"Spark's driver asks nobody for a secret ({tm.SPARK_ALLOW_UNAUTHENTICATED.key}): who reaches it at "
        f"{settings.bind_address} runs code as this user; start the cluster at {settings.master} with "
        f"spark.authenticate and set {tm.SPARK_SECRET_FILE.key}"
    )


def _spark_settings(context: ProcessContext, work: Path) -> SparkSettings:
    configuration = context.configuration
    conf = {key: value for key, value in configuration.spark_conf.items() if key != SPARK_MASTER}
    master = configuration.spark_conf.get(SPARK_MASTER, DEFAULT_MASTER)
    log_file = context.environment.get(LOG_FILE_VARIABLE)
    return SparkSettings(
        master=master,
        slots=slots_of(configuration),
        cores=_cores(),
        heap_bytes=configuration.get(tm.SPARK_MEMORY),
        work_directory=work.absolute(),
        cds_directory=context.layout.cds,
        log_directory=context.layout.log,
        bind_address=configuration.get(tm.TASKMANAGER_BIND_HOST),
        advertised_host="" if master.startswith("local") else configuration.get(tm.TASKMANAGER_HOST),
        secret_file=configuration.get(tm.SPARK_SECRET_FILE),
        network_encryption=configuration.get(tm.SPARK_NETWORK_ENCRYPTION),
        log_prefix=f"{Path(log_file).stem}-spark" if log_file else "spark",
        spark_conf=conf,
        warehouse=configuration.get(tm.SPARK_WAREHOUSE),
        warm_up_count=configuration.get(tm.SPARK_WARM_UP),
        class_archive=configuration.get(tm.SPARK_CLASS_ARCHIVE),
    )

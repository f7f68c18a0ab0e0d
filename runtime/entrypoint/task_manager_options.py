"""From options to the settings of a TaskManager's parts, and to its registration."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from runtime.common.errors import InvalidInputError
from runtime.common.spark_conf import ISOLATION, JVM
from runtime.common.spark_masters import (
    DEFAULT_MASTER,
    SPARK_MASTER,
    MasterKind,
    connect_endpoint,
    has_tls,
    is_connect,
)
from runtime.common.version import PROTOCOL_VERSION, VERSION
from runtime.config.configuration import Configuration
from runtime.config.options import checkpointing, security
from runtime.config.options import jobmanager as jm
from runtime.config.options import taskmanager as tm
from runtime.config.spark_memory import ENVIRONMENT_BYTES_DEFAULT, default_environment_bytes, has_own_jvms
from runtime.entrypoint.control.daemon import LOG_FILE_VARIABLE, RESOURCE_ID_FILE_VARIABLE
from runtime.entrypoint.process import ProcessContext
from runtime.entrypoint.process_options import (
    cores,
    heartbeat_timing,
    seconds,
    slots_of,
)
from runtime.entrypoint.resource_id import kept_resource_id
from runtime.entrypoint.slot_users import (
    NOT_ENFORCED,
    beside_slot_users,
)
from runtime.gateways.resource_manager import RegisterTaskManager
from runtime.gateways.task import ResourceProfile
from runtime.rpc.spark_connect import SparkConnectServer
from runtime.security.token_providers import load_receivers
from runtime.taskexecutor.attempt_logs.log_directory import AttemptLogs
from runtime.taskexecutor.attempt_logs.log_retention import LogRetention
from runtime.taskexecutor.connections.contact import ContactSettings
from runtime.taskexecutor.containment.cgroups import SlotCgroups, SlotLimits
from runtime.taskexecutor.containment.users import SlotUsers
from runtime.taskexecutor.credentials.delegation_tokens import DelegationTokenReceiverRepository
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory
from runtime.taskexecutor.directories.exchange_identity import exchange_identity
from runtime.taskexecutor.directories.job_users import JobUsers
from runtime.taskexecutor.directories.working_directory import WorkingDirectory
from runtime.taskexecutor.guard.records import boot_id
from runtime.taskexecutor.runner import RunnerSettings
from runtime.taskexecutor.settings import ConnectionSettings, TaskExecutorSettings
from runtime.taskexecutor.slots.work import SlotSettings
from runtime.taskexecutor.spark.account import SparkAccount
from runtime.taskexecutor.spark.connect_environment import ConnectEnvironment
from runtime.taskexecutor.spark_protocol.installed_spark import check_supported, pyspark_version
from runtime.taskexecutor.spark_protocol.secret_file import read_secret
from runtime.taskexecutor.spark_protocol.settings import SparkSettings, effective_conf
from runtime.taskexecutor.task_environment import TaskEnvironment
from runtime.taskexecutor.unpacking.limits import UnpackLimits

logger = logging.getLogger(__name__)

_YARN_DIRECTORIES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_ENDED_JOBS_INTERVALS = 10
"""Heartbeat intervals after which jobs without an owner are looked up again (R16)."""


def registration_of(context: ProcessContext, guard_address: str) -> RegisterTaskManager:
    configuration = context.configuration
    slots = slots_of(configuration)
    memory_bytes = configuration.get(tm.TASK_MEMORY)
    has_spark = configuration.get(tm.SPARK_ENABLED)
    version = pyspark_version() if has_spark else ""
    if version:
        check_supported(version)
    offered = _offered_conf(context) if has_spark else {}
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
            cpu_cores=cores() / slots,
            memory_bytes=memory_bytes // slots,
            spark_profile=configuration.get(tm.SPARK_PROFILE),
            labels=configuration.get(tm.LABELS),
        ),
        has_spark=has_spark,
        spark_conf=json.dumps(offered, sort_keys=True).encode(),
        cpu_cores=cores(),
        memory_bytes=memory_bytes,
        exchange_id=exchange_identity(context.layout.exchange_url(configuration), context.entropy),
        spark_version=version,
        has_tenants=configuration.get(tm.TENANCY) == "namespace",
        environment_bytes=_environment_bytes(configuration) if has_spark and not is_connect(offered) else 0,
        environment_accounts=_environment_accounts(configuration) if has_spark else 0,
        metrics_address=context.reporting.address(host),
        worker_id=configuration.get(tm.WORKER_ID),
    )


def _offered_conf(context: ProcessContext) -> Mapping[str, str]:
    """What jobs find in Spark here. Of a Spark Connect server's conf nothing is known but what sessions begin with."""
    conf = context.configuration.spark_conf
    return conf if is_connect(conf) else effective_conf(_spark_settings(context, Path()))


def connect_environment(configuration: Configuration, registration: RegisterTaskManager) -> ConnectEnvironment | None:
    """The default environment where slots are clients of a Spark Connect server. Raises InvalidInputError."""
    conf = configuration.spark_conf
    if not registration.has_spark or not is_connect(conf):
        return None
    master, file = conf[SPARK_MASTER], configuration.get(tm.SPARK_SECRET_FILE)
    token = read_secret(Path(file)) if file else ""
    server = SparkConnectServer(connect_endpoint(master), has_tls=has_tls(master), token=token)
    return ConnectEnvironment(master, server, token, conf)


def _environment_accounts(configuration: Configuration) -> int:
    """Where slots are users of their own, an account is that of one JVM (R50)."""
    if configuration.get(tm.SLOT_UIDS) is None:
        return 0
    return len(configuration.get(tm.SPARK_USER)) - (not has_own_jvms(configuration))


def _environment_bytes(configuration: Configuration) -> int:
    """Memory for Spark environments beside the default one; 0 where no account is left for one."""
    total, default = configuration.get(tm.SPARK_MEMORY_TOTAL), default_environment_bytes(configuration)
    if configuration.get(tm.SLOT_UIDS) is not None and _environment_accounts(configuration) <= 0:
        return 0
    if total is None:
        total = default + ENVIRONMENT_BYTES_DEFAULT
    return total if has_own_jvms(configuration) else max(0, total - default)


def spark_settings(
    context: ProcessContext, directory: WorkingDirectory, users: SlotUsers | None, accounts: Sequence[SparkAccount]
) -> SparkSettings:
    """Settings of Spark. Logs a warning when its driver asks for no secret."""
    settings = _spark_settings(context, directory.spark)
    if users is not None and accounts:
        settings = beside_slot_users(settings, users, accounts[0].umask)
    if context.configuration.get(tm.SPARK_ALLOW_UNAUTHENTICATED):
        logger.warning("%s", _open_spark(settings))
    return settings


def ui_address(configuration: Configuration, task_manager_id: str) -> str:
    """Where people find Spark's own pages of the default environment: its key stands behind the last "/" (R58).

    "" where nobody can look, or where REST has a port that nobody can know before.
    """
    get = configuration.get
    named = [*get(jm.REST_ADDRESSES), *([f"{get(jm.REST_ADDRESS)}:{get(jm.REST_PORT)}"] if get(jm.REST_PORT) else [])]
    if not named or not get(tm.SPARK_UI) or get(jm.REST_SPARK_UI_PORT) < 0:
        return ""
    scheme = "https" if get(security.SSL_REST_ENABLED) else "http"
    return f"{scheme}://{named[0]}/ui/taskmanagers/{quote(task_manager_id, safe='')}/spark-ui/default"


def exchange_directory(context: ProcessContext, *, has_secret_names: bool) -> ExchangeDirectory:
    url = context.layout.exchange_url(context.configuration)
    return ExchangeDirectory(url, context.incarnation, has_secret_names=has_secret_names)


def token_receivers(
    configuration: Configuration, directory: WorkingDirectory, users: JobUsers | None
) -> DelegationTokenReceiverRepository:
    group = None if users is None else users.shared_gid
    return DelegationTokenReceiverRepository(
        directory.credentials, load_receivers(configuration.token_providers), group
    )


def attempt_logs(context: ProcessContext, registration: RegisterTaskManager) -> AttemptLogs:
    configuration = context.configuration
    retention = LogRetention(
        bytes_max=configuration.get(tm.ATTEMPT_LOG_TOTAL),
        age_max=seconds(configuration, tm.ATTEMPT_LOG_RETENTION),
    )
    return AttemptLogs(context.layout.attempt_logs, registration.task_manager_id, retention)


def _secrets_directory(configuration: Configuration) -> str:
    """The directory of secrets. Raises InvalidInputError when it is missing: no job with a secret would run."""
    directory = configuration.get(tm.SECRETS_DIRECTORY)
    if directory and not Path(directory).is_dir():
        message = f"{tm.SECRETS_DIRECTORY.key}: {directory} is no directory here: make it, or correct the path"
        raise InvalidInputError(message)
    return directory


def runner_settings(context: ProcessContext, log_directory: Path, end_stated_for: float) -> RunnerSettings:
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


def slot_settings(
    configuration: Configuration,
    registration: RegisterTaskManager,
    environment: TaskEnvironment,
    *,
    checkpoint_directory: str,
) -> SlotSettings:
    return SlotSettings(
        slots=registration.slots,
        task_manager_id=registration.task_manager_id,
        memory_bytes_max=registration.slot_profile.memory_bytes,
        cancellation_timeout=seconds(configuration, tm.CANCELLATION_TIMEOUT),
        stop_timeout=seconds(configuration, checkpointing.STREAM_STOP_TIMEOUT),
        is_reuse_enabled=configuration.get(tm.SLOT_PROCESS_REUSE),
        inline_bytes_max=configuration.get(tm.EXCHANGE_INLINE_MAX),
        log_bytes_max=configuration.get(tm.ATTEMPT_LOG_MAX),
        is_static_conf_fatal=configuration.get(tm.SCRIPT_STATIC_CONF) == "fail",
        moves_scripts=configuration.get(tm.SCRIPT_STATIC_CONF) == "environment",
        spark_cluster=_spark_cluster(configuration) if registration.has_spark else "",
        environment=environment,
        attaches_ahead=configuration.get(tm.SLOT_UIDS) is None
        and not has_own_jvms(configuration)
        and not is_connect(configuration.spark_conf),
        cgroups=_slot_cgroups(configuration, registration),
        checkpoint_directory=checkpoint_directory,
    )


def _slot_cgroups(configuration: Configuration, registration: RegisterTaskManager) -> SlotCgroups | None:
    """R50. Raises InvalidInputError where control groups are required and not available."""
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


def task_environment(configuration: Configuration) -> TaskEnvironment:
    further: tuple[str, ...] = configuration.get(tm.ENVIRONMENT_PASSED)
    return TaskEnvironment.of_this_process(further)


def _spark_cluster(configuration: Configuration) -> str:
    """The master whose executors are on other hosts, "" for those in our JVM."""
    master = configuration.spark_conf.get(SPARK_MASTER, DEFAULT_MASTER)
    return "" if master.startswith("local") else master


def _open_spark(settings: SparkSettings) -> str:
    """R44: the warning, at each start, about a driver without a secret."""
    return (
        f"Spark's driver asks for no secret ({tm.SPARK_ALLOW_UNAUTHENTICATED.key}): every client that reaches it at "
        f"{settings.bind_address} can run code as this user; start the cluster at {settings.master} with "
        f"spark.authenticate and set {tm.SPARK_SECRET_FILE.key}"
    )


def _spark_settings(context: ProcessContext, work: Path) -> SparkSettings:
    configuration = context.configuration
    conf = {key: value for key, value in configuration.spark_conf.items() if key != SPARK_MASTER}
    if has_own_jvms(configuration):
        conf[ISOLATION] = JVM
    master = configuration.spark_conf.get(SPARK_MASTER, DEFAULT_MASTER)
    log_file = context.environment.get(LOG_FILE_VARIABLE)
    return SparkSettings(
        master=master,
        slots=slots_of(configuration),
        cores=cores(),
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
        has_pages=configuration.get(tm.SPARK_UI),
        configuration_directories=_yarn_directories(context.environment) if master == MasterKind.YARN.value else (),
    )


def _yarn_directories(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Where Hadoop's clients find YARN. Raises InvalidInputError: without it no executor would ever start."""
    named = {name: environment[name] for name in _YARN_DIRECTORIES if environment.get(name)}
    if not named:
        message = (
            f"{SPARK_MASTER}: yarn needs {' or '.join(_YARN_DIRECTORIES)} in the environment of bin/taskmanager.sh: "
            "the directory with yarn-site.xml and core-site.xml"
        )
        raise InvalidInputError(message)
    for name, directory in named.items():
        if not Path(directory).is_dir():
            message = f"{SPARK_MASTER}: yarn: {name}={directory} is no directory here: correct it"
            raise InvalidInputError(message)
    return tuple(dict.fromkeys(named.values()))

"""From options to the settings of the JobManager's components: only its process loads REST and the Dispatcher."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError
from runtime.common.shares import QueuePolicy
from runtime.config import profile_options
from runtime.config.catalog import SPARK_PREFIX
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.options import cluster as c
from runtime.config.options import jobmanager as jm
from runtime.config.options import resourcemanager as rm
from runtime.config.options import security, slotmanager
from runtime.config.options import taskmanager as tm
from runtime.config.options.high_availability import BLOB_MAX_SIZE
from runtime.config.validate import conflicts, is_loopback
from runtime.dispatcher.core.planned_moves import MoveSettings
from runtime.dispatcher.core.retention import Retention
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.dispatcher.settings import DispatcherSettings
from runtime.entrypoint import process_options as options
from runtime.entrypoint.control.daemon import JOBMASTER, LOG_FILE_VARIABLE, TASKMANAGER, DaemonKind
from runtime.entrypoint.control.hosts import hosts_of
from runtime.entrypoint.control.plan import FILES
from runtime.gateways.task import ResourceProfile
from runtime.gateways.task_executor import TaskExecutorGateway
from runtime.resourcemanager.core.job_master_workers import JobMasterWorkerSettings
from runtime.resourcemanager.core.worker_profiles import WorkerProfile
from runtime.resourcemanager.core.workers import WorkerSettings
from runtime.resourcemanager.settings import ResourceManagerSettings
from runtime.rest.access.audit import AuditLog
from runtime.rest.access.key_sets import FetchedKeys, FileKeys, KeySetAddress
from runtime.rest.access.page_cookie import PageCookie
from runtime.rest.access.principal_limits import LimitSettings
from runtime.rest.connections.tls import RestTls
from runtime.rest.forwarding.forward_seal import ForwardSeal
from runtime.rest.server import RestSettings
from runtime.rest.spark_ui.desk import SparkUi, SparkUiSettings
from runtime.security.cluster_key import load_or_create_cluster_key
from runtime.security.core.token_renewal import RenewalSettings
from runtime.security.delegation_tokens import ProviderCalls
from runtime.security.json_web_tokens import JwtSettings, JwtVerifier
from runtime.security.own_certificate import check_own_certificate
from runtime.security.principals import Role
from runtime.security.tls_files import TlsFiles
from runtime.security.token_providers import load_providers

logger = logging.getLogger(__name__)

LEAVE_SECONDS = 60.0
"""Of a TaskManager whose drain is over, and of a JobMaster process without jobs."""
WORKER_ADDRESSES = {JOBMASTER: jm.JOBMASTER_ADDRESS, TASKMANAGER: tm.TASKMANAGER_HOST}
_OF_SPARK = frozenset({tm.SPARK_ENABLED.key, tm.SPARK_MEMORY_TOTAL.key})
"""Options on which it depends whether a TaskManager's Spark fits a job."""
ARCHIVE_PACK_BYTES = 8 * 1024 * 1024


def dispatcher_settings(configuration: Configuration) -> DispatcherSettings:
    """Settings of a Dispatcher."""
    timing = options.heartbeat_timing(configuration)
    return DispatcherSettings(
        limits=JobRegistryLimits(
            configuration.get(jm.JOBS_MAX),
            configuration.get(jm.SUBMITS_MAX),
            configuration.get(security.PRINCIPAL_JOBS),
            configuration.get(security.NAMESPACE_JOBS),
            configuration.get(slotmanager.QUEUES_MAX_COUNT),
        ),
        shown=Retention(configuration.get(jm.JOBSTORE_MAX), options.millis(configuration, jm.JOBSTORE_EXPIRATION)),
        remembered=Retention(
            configuration.get(jm.JOB_ID_MAX),
            options.millis(configuration, jm.JOB_ID_RETENTION),
            configuration.get(jm.ARCHIVES_MAX),
        ),
        heartbeat_interval=timing.interval,
        heartbeat_timeout=timing.timeout,
        rpc_timeout=options.seconds(configuration, c.RPC_TIMEOUT),
        moves=MoveSettings(
            rebalanced_max=configuration.get(jm.REBALANCE_MAX_MOVES) if configuration.get(jm.REBALANCE) else 0
        ),
        pack_bytes_max=min(ARCHIVE_PACK_BYTES, configuration.get(BLOB_MAX_SIZE)),
    )


def resource_manager_settings(configuration: Configuration, layout: Layout) -> ResourceManagerSettings:
    """Settings of a ResourceManager."""
    is_by_ssh = configuration.get(rm.DRIVER) == "ssh"
    places = len(hosts_of(layout.conf / FILES[TASKMANAGER])) if is_by_ssh else 0
    timing = options.heartbeat_timing(configuration)
    preemption_timeout = options.seconds(configuration, slotmanager.PREEMPTION_TIMEOUT)
    return ResourceManagerSettings(
        timing.interval,
        timing.timeout,
        workers=worker_settings(configuration, places),
        queues=configuration.queues,
        preemption_timeout=preemption_timeout if configuration.get(slotmanager.PREEMPTION) else None,
    )


def queue_policy(configuration: Configuration) -> QueuePolicy:
    """Which job may be in which queue."""
    return QueuePolicy(configuration.queues, configuration.get(slotmanager.QUEUES_OPEN))


def worker_settings(configuration: Configuration, places: int = 0) -> WorkerSettings | None:
    """Of TaskManagers that a driver starts; None without one. `places`: lines of the file of their hosts, if any."""
    get = configuration.get
    if get(rm.DRIVER) == "standalone":
        return None
    slots, most = options.slots_of(configuration), get(rm.SLOTS_MAX)
    if most is None:
        most = max(slots, get(rm.SLOTS_MIN), places * slots or 2 * options.cores())
    if slots > most:
        message = (
            f"{rm.SLOTS_MAX.key}: {most} is less than one TaskManager's {slots} slots "
            f"(taskmanager.numberOfTaskSlots), so none would ever start: raise it"
        )
        raise InvalidInputError(message)
    for key, kept in ((rm.SLOTS_MIN, -(-get(rm.SLOTS_MIN) // slots)), (rm.REDUNDANT, get(rm.REDUNDANT))):
        if kept * slots > most:
            message = (
                f"{key.key}: {get(key)} takes {kept} TaskManagers of {slots} slots (taskmanager.numberOfTaskSlots), "
                f"and {rm.SLOTS_MAX.key} is {most}, so they would never all start: lower it, or raise that"
            )
            raise InvalidInputError(message)
    slot = _slot_of(configuration)
    profiles = tuple(worker_profile(configuration, name) for name in configuration.profiles)
    kept = max(-(-get(rm.SLOTS_MIN) // slots), get(rm.REDUNDANT)) * slots
    if problems := [
        problem for one in profiles for problem in _profile_problems(configuration, one, slot, most - kept)
    ]:
        raise InvalidInputError("\n".join(problems), tuple(problems))
    return WorkerSettings(
        slots=slots,
        slot=slot,
        profiles=profiles,
        slots_min=get(rm.SLOTS_MIN),
        slots_max=most,
        redundant=get(rm.REDUNDANT),
        idle_timeout=options.seconds(configuration, rm.IDLE_TIMEOUT),
        registration_timeout=options.seconds(configuration, rm.REGISTRATION_TIMEOUT),
        failures_max=get(rm.START_FAILURES_MAX),
        retry_interval=options.seconds(configuration, rm.START_RETRY_INTERVAL),
        recovery_timeout=options.seconds(configuration, rm.RECOVERY_TIMEOUT),
        leave_timeout=options.seconds(configuration, tm.DRAIN_TIMEOUT) + LEAVE_SECONDS,
    )


def worker_profile(configuration: Configuration, name: str) -> WorkerProfile:
    """What a TaskManager with a profile offers."""
    own = configuration.of_profile(name)
    return WorkerProfile(name, options.slots_of(own), _slot_of(own))


def _slot_of(configuration: Configuration) -> ResourceProfile:
    """What a slot of a TaskManager offers. Cores of other hosts are not known before one registers there."""
    get, slots = configuration.get, options.slots_of(configuration)
    cores = options.cores() if get(rm.DRIVER) == "process" else math.inf
    return ResourceProfile(cores / slots, get(tm.TASK_MEMORY) // slots, get(tm.SPARK_PROFILE), get(tm.LABELS))


def _profile_problems(
    configuration: Configuration, profile: WorkerProfile, slot: ResourceProfile, room: int
) -> Iterator[str]:
    """What keeps a driver from ever starting TaskManagers of a profile. `room`: slots beside those that are kept."""
    key = f"{profile_options.PREFIX}{profile.name}"
    known = set(conflicts(configuration))
    yield from (f"{key}: {one}" for one in conflicts(configuration.of_profile(profile.name)) if one not in known)
    if profile.slots > room:
        yield (
            f"{key}: its TaskManagers have {profile.slots} slots, and {rm.SLOTS_MAX.key} leaves {room} beside those "
            f"that {rm.SLOTS_MIN.key} and {rm.REDUNDANT.key} keep: none would ever start: raise it, or lower these"
        )
    if any(one in _OF_SPARK or one.startswith(SPARK_PREFIX) for one in configuration.profiles[profile.name]):
        return
    own = profile.slot
    is_no_larger = own.memory_bytes <= slot.memory_bytes and own.cpu_cores <= slot.cpu_cores
    if is_no_larger and set(own.labels) <= set(slot.labels) and own.spark_profile in {"", slot.spark_profile}:
        yield (
            f"{key}: no job would ever have it started, since a slot of the cluster's own configuration has all that "
            f"it has: give it a label ({tm.LABELS.key}), more memory for each slot, or a {tm.SPARK_PROFILE.key}; or "
            "remove it"
        )


def job_master_worker_settings(configuration: Configuration) -> JobMasterWorkerSettings | None:
    """Of JobMaster processes that a driver starts; None where it starts none."""
    get = configuration.get
    most = get(jm.AUTOSCALE_MAX)
    if most is None:
        return None
    return JobMasterWorkerSettings(
        minimum=get(jm.AUTOSCALE_MIN),
        maximum=most,
        jobs=get(jm.AUTOSCALE_JOBS),
        lag_max=options.seconds(configuration, jm.AUTOSCALE_LAG),
        stabilization=options.seconds(configuration, jm.AUTOSCALE_STABILIZATION),
        scale_down=options.seconds(configuration, jm.AUTOSCALE_DOWN),
        registration_timeout=options.seconds(configuration, rm.REGISTRATION_TIMEOUT),
        failures_max=get(rm.START_FAILURES_MAX),
        retry_interval=options.seconds(configuration, rm.START_RETRY_INTERVAL),
        recovery_timeout=options.seconds(configuration, rm.RECOVERY_TIMEOUT),
        leave_timeout=LEAVE_SECONDS,
    )


def worker_options(configuration: Configuration, kind: DaemonKind, dynamic: Sequence[str]) -> Sequence[str]:
    """The -D options of what a driver starts on this host: those of this JobManager, whose host it is reached at."""
    own, theirs = configuration.get(jm.JOBMANAGER_ADDRESS), WORKER_ADDRESSES[kind]
    if configuration.get(theirs) != theirs.default or own == jm.JOBMANAGER_ADDRESS.default:
        return dynamic
    return [*dynamic, f"{theirs.key}={own}"]


def limit_settings(configuration: Configuration) -> LimitSettings:
    """Limits of one principal's requests (R49)."""
    return LimitSettings(configuration.get(security.PRINCIPAL_REQUESTS), configuration.get(security.PRINCIPAL_RUNNING))


def audit_log(
    configuration: Configuration,
    layout: Layout,
    environment: Mapping[str, str],
    clock: Clock,
    *,
    process: str = "jobmanager",
) -> AuditLog:
    """The audit log (R49): beside the log of this process, or named by host and process when it has none."""
    log_file = environment.get(LOG_FILE_VARIABLE)
    if log_file:
        path = Path(log_file).with_name(f"audit-{Path(log_file).stem.removeprefix('flinklike-')}.jsonl")
    else:
        path = layout.log / f"audit-{process}-{socket.gethostname()}-{os.getpid()}.jsonl"
    return AuditLog(path, clock, files_max=configuration.get(c.LOG_MAX))


def rest_settings(configuration: Configuration) -> RestSettings:
    """Settings of the REST endpoint."""
    return RestSettings(
        bind_address=configuration.get(jm.REST_BIND_ADDRESS),
        port=configuration.get(jm.REST_PORT),
        content_length_max=configuration.get(jm.REST_MAX_CONTENT),
        hosts=rest_hosts(configuration),
        allowed_hosts=configuration.get(jm.REST_ALLOWED_HOSTS),
    )


def spark_ui(
    configuration: Configuration, clock: Clock, task_executor: Callable[[str], TaskExecutorGateway]
) -> SparkUi | None:
    """Spark's own pages (R58); None where nobody sees them."""
    port = configuration.get(jm.REST_SPARK_UI_PORT)
    if port < 0:
        return None
    settings = SparkUiSettings(
        configuration.get(jm.REST_BIND_ADDRESS), port, configuration.get(jm.REST_SPARK_UI_ADDRESS)
    )
    return SparkUi(settings, clock, task_executor)


def rest_tls(configuration: Configuration) -> RestTls | None:
    """REST's certificate and trusted CAs (R46); None for plain text. Raises InvalidInputError."""
    get = configuration.get
    if not get(security.SSL_REST_ENABLED):
        return None
    paths = (Path(get(one)) for one in (security.SSL_REST_CERT, security.SSL_REST_KEY, security.SSL_REST_CA))
    files = TlsFiles("security.ssl.rest", *paths)
    tls = RestTls.of_files(files, SystemClock(), asks_clients=get(security.SSL_REST_AUTHENTICATION))
    check_own_certificate(files, get(jm.REST_ADDRESS), jm.REST_ADDRESS.key, is_mutual=False)
    return tls


def rest_facts(configuration: Configuration, address: str) -> dict[str, str]:
    """The part of the ready file that tells clients of this host how to reach REST."""
    if not configuration.get(security.SSL_REST_ENABLED):
        return {"address": address, "url": f"http://{address}"}
    return {"address": address, "url": f"https://{address}", "ca": configuration.get(security.SSL_REST_CA)}


def rest_hosts(configuration: Configuration) -> tuple[str, ...]:
    """Host names of this endpoint that need not be configured: those that others are told, and this host's."""
    told = [
        configuration.get(jm.REST_ADDRESS),
        *(one.rpartition(":")[0] for one in configuration.get(jm.REST_ADDRESSES)),
    ]
    own = socket.gethostname()
    return tuple(dict.fromkeys([*told, own, own.partition(".")[0]]))


def forward_seal(configuration: Configuration, layout: Layout) -> ForwardSeal:
    """The seal with which stand-bys sign forwarded requests (R48). No client has its key."""
    return ForwardSeal(load_or_create_cluster_key(layout.cluster_key_file(configuration)))


def page_cookie(configuration: Configuration, layout: Layout, clock: Clock) -> PageCookie:
    """The cookie of browsers that sign in (R48). Every JobManager of the cluster opens it."""
    return PageCookie(load_or_create_cluster_key(layout.cluster_key_file(configuration)), clock)


def jwt_settings(configuration: Configuration) -> JwtSettings | None:
    """Issuer, audiences and claims of JSON Web Tokens that sign in (R48), None when none do."""
    get = configuration.get
    if not get(security.JWT_ISSUER):
        return None
    return JwtSettings(
        issuer=get(security.JWT_ISSUER),
        audiences=get(security.JWT_AUDIENCE),
        leeway=options.seconds(configuration, security.JWT_LEEWAY),
        name_claim=get(security.JWT_CLAIM_NAME),
        role_claim=get(security.JWT_CLAIM_ROLE),
        namespace_claim=get(security.JWT_CLAIM_NAMESPACE),
        roles={value: Role.parse(role) for value, role in get(security.JWT_ROLES)},
    )


def jwt_sign_in(configuration: Configuration, clock: Clock, scope: Scope) -> JwtVerifier | None:
    """What verifies JSON Web Tokens, with keys that are fetched in `scope`; None where none sign in."""
    settings = jwt_settings(configuration)
    if settings is None:
        return None
    keys = jwt_keys(configuration, clock)
    if isinstance(keys, FetchedKeys):
        scope.spawn_eternal("keys of JWTs", keys.run())
    return JwtVerifier(settings, keys, clock)


def jwt_keys(configuration: Configuration, clock: Clock) -> FileKeys | FetchedKeys:
    """The keys that verify JSON Web Tokens. Raises InvalidInputError for a file that cannot be used."""
    get = configuration.get
    key_set = get(security.JWT_JWKS)
    if "://" not in key_set:
        return FileKeys(Path(key_set or get(security.JWT_KEY_FILE)), clock, is_set=bool(key_set))
    ca_file = get(security.JWT_JWKS_CA_FILE)
    refresh = options.seconds(configuration, security.JWT_JWKS_REFRESH)
    pause = options.seconds(configuration, security.JWT_JWKS_PAUSE)
    return FetchedKeys(KeySetAddress(key_set, Path(ca_file) if ca_file else None, refresh, pause), clock)


def token_renewal(configuration: Configuration) -> RenewalSettings:
    """When delegation tokens are renewed."""
    return RenewalSettings(
        configuration.get(security.DELEGATION_TOKENS_TIME_RATIO),
        options.seconds(configuration, security.DELEGATION_TOKENS_RETRY_BACKOFF),
    )


def token_providers(configuration: Configuration, clock: Clock) -> Sequence[ProviderCalls]:
    """The providers of delegation tokens (R51). Raises InvalidInputError."""
    if not configuration.get(security.DELEGATION_TOKENS_ENABLED):
        return ()
    made = load_providers(configuration.token_providers, clock)
    is_open = not is_loopback(configuration.get(jm.JOBMANAGER_BIND_HOST))
    if made and is_open and not configuration.get(security.SSL_INTERNAL_ENABLED):
        logger.warning(
            "delegation tokens travel to TaskManagers on other hosts in plain text: set %s: true",
            security.SSL_INTERNAL_ENABLED.key,
        )
    return [ProviderCalls(name, provider) for name, provider in made.items()]

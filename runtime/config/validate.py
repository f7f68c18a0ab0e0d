"""Rules across options. Each yields sentences that say what to change."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from runtime.common.spark_conf import ISOLATION, JVM, OWNED
from runtime.common.spark_masters import is_connect
from runtime.config import queue_options, spark_master_options, worker_options
from runtime.config.configuration import Configuration
from runtime.config.option import ConfigOption
from runtime.config.options import adaptive_batch, slotmanager
from runtime.config.options.cluster import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from runtime.config.options.failures import EXPONENTIAL_DELAY_INITIAL, EXPONENTIAL_DELAY_MAX
from runtime.config.options.high_availability import (
    ETCD_ALLOW_UNAUTHENTICATED,
    ETCD_EMBEDDED,
    ETCD_ENDPOINTS,
    ETCD_PASSWORD,
    ETCD_TIMEOUT,
    ETCD_TLS_CA,
    ETCD_TLS_CERT,
    ETCD_TLS_KEY,
    ETCD_USERNAME,
    HA_TYPE,
    LEASE_TIMEOUT,
)
from runtime.config.options.history import HISTORY_ADDRESS
from runtime.config.options.jobmanager import (
    JOBMANAGER_ADDRESS,
    JOBMANAGER_BIND_HOST,
    JOBMANAGER_PORT,
    JOBMASTER_ADDRESS,
    JOBMASTER_BIND_HOST,
    REST_BIND_ADDRESS,
    SINGLE_JOBMASTER,
)
from runtime.config.options.metrics import (
    METRICS_ALLOW_UNAUTHENTICATED,
    METRICS_BIND_ADDRESS,
    METRICS_MAX_SERIES,
    METRICS_OTLP_ENDPOINT,
    METRICS_OTLP_INTERVAL,
    METRICS_OTLP_SERVICE,
    METRICS_PORT,
    METRICS_REPORTERS,
)
from runtime.config.options.resourcemanager import DRIVER
from runtime.config.options.security import (
    INTERNAL_ACCEPT_TOKEN,
    INTERNAL_TOKEN_FILE,
    JWT_AUDIENCE,
    JWT_ISSUER,
    JWT_JWKS,
    JWT_JWKS_CA_FILE,
    JWT_KEY_FILE,
    SECURITY_ALLOW_UNAUTHENTICATED,
    SECURITY_AUTHENTICATION,
    SSL_INTERNAL_CA,
    SSL_INTERNAL_CERT,
    SSL_INTERNAL_ENABLED,
    SSL_INTERNAL_KEY,
    SSL_REST_AUTHENTICATION,
    SSL_REST_CA,
    SSL_REST_CERT,
    SSL_REST_ENABLED,
    SSL_REST_KEY,
)
from runtime.config.options.taskmanager import (
    ISOLATION_TIMEOUT,
    SLOT_CGROUPS,
    SLOT_CPU_MAX,
    SLOT_ISOLATION,
    SLOT_PROCESSES_MAX,
    SLOT_UIDS,
    SPARK_ENABLED,
    SPARK_MEMORY,
    SPARK_MEMORY_TOTAL,
    SPARK_USER,
    SPARK_WAREHOUSE,
    TASKMANAGER_BIND_HOST,
    TASKMANAGER_HOST,
)
from runtime.config.options.traces import TRACES_ENDPOINT, TRACES_RATIO, TRACES_REPORTERS, TRACES_SERVICE
from runtime.config.spark_memory import default_environment_bytes, has_own_jvms

_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def conflicts(configuration: Configuration) -> list[str]:
    """Every contradiction between options that are valid on their own."""
    return [
        *_open_ports(configuration),
        *_encryption(configuration),
        *_internal_credential(configuration),
        *_json_web_tokens(configuration),
        *_high_availability(configuration),
        *_embedded(configuration),
        *_timing(configuration),
        *queue_options.conflicts(configuration.queues),
        *_spark(configuration),
        *_slot_users(configuration),
        *_restarts(configuration),
        *worker_options.conflicts(configuration),
        *_preemption(configuration),
        *_chosen_parallelism(configuration),
        *_metrics(configuration),
        *_traces(configuration),
    ]


def _preemption(configuration: Configuration) -> Iterator[str]:
    option, switch = slotmanager.PREEMPTION_TIMEOUT, slotmanager.PREEMPTION
    if configuration.get(option) != option.default and not configuration.get(switch):
        yield f"{option.key} has no effect without {switch.key}: true: set that, or remove it"


def _chosen_parallelism(configuration: Configuration) -> Iterator[str]:
    """No job chooses where the scheduler of the cluster does not; with another one a job may, whatever is set here."""
    if configuration.get(adaptive_batch.SCHEDULER) != "Default":
        return
    chosen = (adaptive_batch.PARALLELISM_MIN, adaptive_batch.PARALLELISM_MAX, adaptive_batch.BYTES_PER_TASK)
    for option in (adaptive_batch.AUTO_PARALLELISM_ENABLED, *chosen, adaptive_batch.SKEW_FACTOR):
        if configuration.has(option):
            yield f"{option.key} has no effect with {adaptive_batch.SCHEDULER.key}: Default: remove it"


def _open_ports(configuration: Configuration) -> Iterator[str]:
    """R41: open ports without authentication need a second option that confirms them."""
    get = configuration.get
    if get(SECURITY_AUTHENTICATION) != "none" or get(SECURITY_ALLOW_UNAUTHENTICATED):
        return
    if not is_loopback(get(HISTORY_ADDRESS)):
        yield (
            f"{HISTORY_ADDRESS.key}: {get(HISTORY_ADDRESS)} with {SECURITY_AUTHENTICATION.key}: none shows the jobs "
            f"of all clusters to every client that reaches this host: remove one of them, or set "
            f"{SECURITY_ALLOW_UNAUTHENTICATED.key}: true too"
        )
    for option in (REST_BIND_ADDRESS, JOBMANAGER_BIND_HOST, JOBMASTER_BIND_HOST, TASKMANAGER_BIND_HOST):
        if not is_loopback(get(option)):
            yield (
                f"{option.key}: {get(option)} with {SECURITY_AUTHENTICATION.key}: none lets every client that reaches "
                f"this host run code here: remove one of them, or set {SECURITY_ALLOW_UNAUTHENTICATED.key}: true too"
            )


def _encryption(configuration: Configuration) -> Iterator[str]:
    """R46: TLS is set completely or not at all, and no option of it is without effect."""
    get = configuration.get
    for switch, files in (
        (SSL_INTERNAL_ENABLED, (SSL_INTERNAL_CERT, SSL_INTERNAL_KEY, SSL_INTERNAL_CA)),
        (SSL_REST_ENABLED, (SSL_REST_CERT, SSL_REST_KEY, SSL_REST_CA)),
    ):
        for option in files:
            if get(switch) and not get(option):
                yield f"{switch.key}: true needs {option.key}: `flinklike certs issue` prints it"
            if get(option) and not get(switch):
                yield f"{option.key} has no effect without {switch.key}: true: set that, or remove it"
            if get(option) and not PurePath(get(option)).is_absolute():
                yield f"{option.key}: {get(option)} has to be a path from /: processes have other working directories"
    if get(SSL_REST_AUTHENTICATION) and not get(SSL_REST_ENABLED):
        yield f"{SSL_REST_AUTHENTICATION.key}: true has no effect without {SSL_REST_ENABLED.key}: true: set that too"
    is_open = get(ETCD_ENDPOINTS) and not get(ETCD_TLS_CA) and not get(ETCD_ALLOW_UNAUTHENTICATED)
    if get(SSL_INTERNAL_ENABLED) and is_open:
        yield (
            f"{SSL_INTERNAL_ENABLED.key}: true leaves the connections to etcd in plain text: set {ETCD_TLS_CA.key}, or "
            f"{ETCD_ALLOW_UNAUTHENTICATED.key}: true in a network where no attacker listens"
        )


def _internal_credential(configuration: Configuration) -> Iterator[str]:
    """R48: without authentication there is no internal credential."""
    if configuration.get(SECURITY_AUTHENTICATION) == "none":
        options: tuple[ConfigOption[Any], ...] = (INTERNAL_TOKEN_FILE, INTERNAL_ACCEPT_TOKEN)
        for option in options:
            if configuration.get(option):
                yield f"{option.key} has no effect with {SECURITY_AUTHENTICATION.key}: none: remove one of them"


def _json_web_tokens(configuration: Configuration) -> Iterator[str]:
    """R48: issuer, audience and keys of JWTs are set together or not at all."""
    get = configuration.get
    required: tuple[ConfigOption[Any], ...] = (JWT_ISSUER, JWT_AUDIENCE)
    is_any = any(get(option) for option in (*required, JWT_KEY_FILE, JWT_JWKS))
    if is_any and get(SECURITY_AUTHENTICATION) == "none":
        yield f"security.jwt.* has no effect with {SECURITY_AUTHENTICATION.key}: none: remove one of them"
    for option in required:
        if is_any and not get(option):
            yield f"JWTs need {option.key}: without it tokens of another issuer or audience would sign in here"
    if is_any and bool(get(JWT_KEY_FILE)) == bool(get(JWT_JWKS)):
        yield f"JWTs need either {JWT_KEY_FILE.key} or {JWT_JWKS.key}: set one of them"
    is_address = "://" in get(JWT_JWKS)
    if is_address and not get(JWT_JWKS).startswith("https://"):
        yield f"{JWT_JWKS.key}: {get(JWT_JWKS)} has to begin with https://, or an attacker could send the keys"
    if is_address and not _names_a_host(get(JWT_JWKS)):
        yield f"{JWT_JWKS.key}: {get(JWT_JWKS)} is no address: expected https://<host>[:<port>]/<path>"
    if get(JWT_JWKS_CA_FILE) and not is_address:
        yield f"{JWT_JWKS_CA_FILE.key} has no effect without an address in {JWT_JWKS.key}: remove it"
    for file in (JWT_KEY_FILE, JWT_JWKS_CA_FILE, *(() if is_address else (JWT_JWKS,))):
        if get(file) and not PurePath(get(file)).is_absolute():
            yield f"{file.key}: {get(file)} has to be a path from /: processes have other working directories"


def _names_a_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # urllib checks the port when it is read
    except ValueError:
        return False
    return bool(parts.hostname)


def is_loopback(host: str) -> bool:
    """True for an address that other hosts do not reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _high_availability(configuration: Configuration) -> Iterator[str]:
    get = configuration.get
    is_etcd = get(HA_TYPE) == "etcd"
    if get(SINGLE_JOBMASTER) and not is_etcd:
        yield (
            f"{SINGLE_JOBMASTER.key}: true needs {HA_TYPE.key}: etcd (JobMaster processes are found through etcd): "
            "set it, or turn split JobMasters off"
        )
    if is_etcd and not get(ETCD_ENDPOINTS) and not get(ETCD_EMBEDDED):
        yield f"{HA_TYPE.key}: etcd needs {ETCD_ENDPOINTS.key}, or {ETCD_EMBEDDED.key}: true on a single host"
    if is_etcd and get(ETCD_ENDPOINTS):
        yield from _unauthenticated(configuration)
    if get(ETCD_EMBEDDED) and not is_etcd:
        yield f"{ETCD_EMBEDDED.key}: true needs {HA_TYPE.key}: etcd"
    if not is_etcd and get(JOBMANAGER_PORT) == 0 and get(DRIVER) == "standalone":
        yield f"{JOBMANAGER_PORT.key}: 0 needs {HA_TYPE.key}: etcd, where processes find the JobManager: set a port"
    if bool(get(ETCD_USERNAME)) != bool(get(ETCD_PASSWORD)):
        yield f"{ETCD_USERNAME.key} and {ETCD_PASSWORD.key} go together: set both or none"
    if bool(get(ETCD_TLS_CERT)) != bool(get(ETCD_TLS_KEY)):
        yield f"{ETCD_TLS_CERT.key} and {ETCD_TLS_KEY.key} go together: set both or none"
    if get(ETCD_TLS_CERT) and not get(ETCD_TLS_CA):
        yield f"{ETCD_TLS_CERT.key} needs {ETCD_TLS_CA.key}"


def _unauthenticated(configuration: Configuration) -> Iterator[str]:
    """R37: a client that can write to etcd can run code here."""
    get = configuration.get
    has_credentials = bool(get(ETCD_TLS_CERT) or get(ETCD_USERNAME))
    if not has_credentials and not get(ETCD_ALLOW_UNAUTHENTICATED):
        yield (
            f"{ETCD_ENDPOINTS.key} names an etcd without authentication, and every client that writes there can run "
            f"code in this cluster: set {ETCD_TLS_CA.key}, {ETCD_TLS_CERT.key} and {ETCD_TLS_KEY.key} (etcd with "
            f"--client-cert-auth), or {ETCD_USERNAME.key} and {ETCD_PASSWORD.key}; or "
            f"{ETCD_ALLOW_UNAUTHENTICATED.key}: true where every client that reaches etcd may do that"
        )
    if has_credentials and get(ETCD_ALLOW_UNAUTHENTICATED):
        yield f"{ETCD_ALLOW_UNAUTHENTICATED.key}: true has no effect beside credentials for etcd: remove it"


def _embedded(configuration: Configuration) -> Iterator[str]:
    get = configuration.get
    if not get(ETCD_EMBEDDED):
        return
    others: tuple[ConfigOption[Any], ...] = (ETCD_TLS_CA, ETCD_TLS_CERT, ETCD_USERNAME, ETCD_ALLOW_UNAUTHENTICATED)
    for option in others:
        if get(option):
            yield f"{option.key} has no effect with {ETCD_EMBEDDED.key}: true, which brings its certificates: remove it"
    if get(ETCD_ENDPOINTS):
        yield f"{ETCD_EMBEDDED.key}: true and {ETCD_ENDPOINTS.key} exclude each other: remove one"
    for host in (JOBMANAGER_ADDRESS, JOBMASTER_ADDRESS, TASKMANAGER_HOST):
        if get(host) not in LOCAL_HOSTS:
            yield (
                f"{ETCD_EMBEDDED.key}: true works on one host only, but {host.key} is {get(host)}: "
                f"run an etcd cluster and set {ETCD_ENDPOINTS.key}"
            )


def _timing(configuration: Configuration) -> Iterator[str]:
    get = configuration.get
    if get(HEARTBEAT_TIMEOUT) < 2 * get(HEARTBEAT_INTERVAL):
        yield f"{HEARTBEAT_TIMEOUT.key} must be at least twice {HEARTBEAT_INTERVAL.key}"
    if get(ISOLATION_TIMEOUT) < 3 * get(HEARTBEAT_INTERVAL):
        yield (
            f"{ISOLATION_TIMEOUT.key} must be at least three times {HEARTBEAT_INTERVAL.key}, which is how often "
            "TaskManagers read their keys"
        )
    if get(LEASE_TIMEOUT).total_seconds() < 2:
        yield f"{LEASE_TIMEOUT.key} must be at least 2 s: three renewals have to fit into it"
    if get(ETCD_TIMEOUT) > get(LEASE_TIMEOUT):
        yield f"{ETCD_TIMEOUT.key} must not be longer than {LEASE_TIMEOUT.key}"


def _spark(configuration: Configuration) -> Iterator[str]:
    yield from spark_master_options.conflicts(configuration)
    total, least = configuration.get(SPARK_MEMORY_TOTAL), default_environment_bytes(configuration)
    if configuration.get(SPARK_ENABLED) and total and total < least:
        yield (
            f"{SPARK_MEMORY_TOTAL.key} is for all driver JVMs of a TaskManager, and one takes {least >> 20} "
            f"mb ({SPARK_MEMORY.key} and its overhead): raise it, or set it to 0 to start no other"
        )
    if ISOLATION in configuration.spark_conf:
        yield f"{ISOLATION} is for jobs: set {SLOT_ISOLATION.key}: {JVM} instead"
    if has_own_jvms(configuration):
        yield from _own_jvms(configuration)
    if configuration.get(SPARK_ENABLED) and not is_connect(configuration.spark_conf):
        yield from (f"{key}: {reason}" for key, reason in OWNED.items() if key in configuration.spark_conf)


def _own_jvms(configuration: Configuration) -> Iterator[str]:
    """R53: what a TaskManager without a JVM for all jobs cannot have."""
    what = f"{SLOT_ISOLATION.key}: {JVM}"
    if not configuration.get(SPARK_ENABLED):
        yield f"{what} is for TaskManagers with Spark: set {SPARK_ENABLED.key} to true, or leave it out"
    if configuration.get(SPARK_MEMORY_TOTAL) == 0:
        yield f"{what} starts a JVM for each job, and {SPARK_MEMORY_TOTAL.key}: 0 leaves no room for any: raise it"
    if configuration.get(SPARK_WAREHOUSE):
        yield f"{what} and {SPARK_WAREHOUSE.key} contradict each other: one JVM at a time can use that catalog"


def _slot_users(configuration: Configuration) -> Iterator[str]:
    """R50: a task with a session of Spark can do in its JVM what the JVM's user may."""
    if configuration.get(SLOT_CPU_MAX) and configuration.get(SLOT_CGROUPS) == "off":
        yield f"{SLOT_CPU_MAX.key} takes control groups: set {SLOT_CGROUPS.key} to auto or required"
    has_users, user = configuration.get(SLOT_UIDS) is not None, configuration.get(SPARK_USER)
    if configuration.has(SLOT_PROCESSES_MAX) and not has_users and configuration.get(SLOT_CGROUPS) == "off":
        yield f"{SLOT_PROCESSES_MAX.key} has no effect without {SLOT_UIDS.key} or {SLOT_CGROUPS.key}: set one of them"
    if has_users and not configuration.get(SSL_INTERNAL_ENABLED):
        yield (
            f"{SLOT_UIDS.key} takes {SSL_INTERNAL_ENABLED.key}: true. In plain text a task that listens on the port of "
            "a process which has ended hears what processes of the cluster show each other: `flinklike certs` makes "
            "certificates"
        )
    if user and not has_users:
        yield f"{SPARK_USER.key} is for TaskManagers whose slots are users of their own: set {SLOT_UIDS.key} too"
    if not has_users or not configuration.get(SPARK_ENABLED):
        return
    if not user:
        yield (
            f"{SLOT_UIDS.key} takes {SPARK_USER.key} beside Spark: a JVM of the TaskManager's user would do for any "
            f"task with a session what root may. Name an account for it, or set {SPARK_ENABLED.key}: false"
        )
    if not (master := configuration.spark_conf.get("spark.master", "local[*]")).startswith("local"):
        yield (
            f"{SLOT_UIDS.key} is for spark.master local[...]: with {master} tasks of all jobs run in executors of one "
            "user elsewhere"
        )
    if configuration.spark_conf.get(_UNIX_SOCKETS, "false").lower() == "true":
        yield f"{_UNIX_SOCKETS}: slots that are users of their own ({SLOT_UIDS.key}) cannot open the sockets of the JVM"


def _restarts(configuration: Configuration) -> Iterator[str]:
    if configuration.get(EXPONENTIAL_DELAY_MAX) < configuration.get(EXPONENTIAL_DELAY_INITIAL):
        yield f"{EXPONENTIAL_DELAY_MAX.key} must not be below {EXPONENTIAL_DELAY_INITIAL.key}"


def _metrics(configuration: Configuration) -> Iterator[str]:
    get = configuration.get
    of_reporters: dict[str, tuple[ConfigOption[Any], ...]] = {
        "prometheus": (METRICS_PORT, METRICS_BIND_ADDRESS, METRICS_ALLOW_UNAUTHENTICATED),
        "otlp": (METRICS_OTLP_ENDPOINT, METRICS_OTLP_INTERVAL, METRICS_OTLP_SERVICE),
    }
    for name, options in of_reporters.items():
        for option in options:
            if configuration.has(option) and name not in get(METRICS_REPORTERS):
                yield f"{option.key} has no effect without {METRICS_REPORTERS.key}: {name}: set that, or remove it"
    if configuration.has(METRICS_MAX_SERIES) and not get(METRICS_REPORTERS):
        yield f"{METRICS_MAX_SERIES.key} has no effect without {METRICS_REPORTERS.key}: set that, or remove it"
    address, is_allowed = get(METRICS_BIND_ADDRESS), get(METRICS_ALLOW_UNAUTHENTICATED)
    if not is_loopback(address) and not is_allowed:  # R41
        yield (
            f"{METRICS_BIND_ADDRESS.key}: {address} lets everybody who reaches this host read the metrics: set "
            f"{METRICS_ALLOW_UNAUTHENTICATED.key}: true too where they may"
        )
    if is_loopback(address) and is_allowed and "prometheus" in get(METRICS_REPORTERS):
        yield (
            f"{METRICS_ALLOW_UNAUTHENTICATED.key}: true has no effect on loopback: set {METRICS_BIND_ADDRESS.key} "
            "too, or remove it"
        )


def _traces(configuration: Configuration) -> Iterator[str]:
    options: tuple[ConfigOption[Any], ...] = (TRACES_ENDPOINT, TRACES_SERVICE, TRACES_RATIO)
    for option in options:
        if configuration.has(option) and not configuration.get(TRACES_REPORTERS):
            yield f"{option.key} has no effect without {TRACES_REPORTERS.key}: otlp: set that, or remove it"

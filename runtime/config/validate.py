"""Rules across options. Each returns a sentence that says what to change."""

from __future__ import annotations

import re
from collections.abc import Iterator

from runtime.config.configuration import Configuration
from runtime.config.options.cluster import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from runtime.config.options.failures import EXPONENTIAL_DELAY_INITIAL, EXPONENTIAL_DELAY_MAX
from runtime.config.options.high_availability import (
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
from runtime.config.options.jobmanager import (
    JOBMANAGER_ADDRESS,
    JOBMANAGER_PORT,
    JOBMASTER_ADDRESS,
    SINGLE_JOBMASTER,
)
from runtime.config.options.taskmanager import ISOLATION_TIMEOUT, TASKMANAGER_HOST

_SPARK_MASTER = re.compile(r"(local(\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?|spark://[^\s/:,]+:\d+(,[^\s/:,]+:\d+)*)\Z")
"""`local[n,f]` and the several hosts of a standby master are Spark's own forms."""

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def conflicts(configuration: Configuration) -> list[str]:
    """Every contradiction between options that are valid on their own."""
    return [
        *_high_availability(configuration),
        *_embedded(configuration),
        *_timing(configuration),
        *_spark(configuration),
        *_restarts(configuration),
    ]


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
    if get(ETCD_EMBEDDED) and not is_etcd:
        yield f"{ETCD_EMBEDDED.key}: true needs {HA_TYPE.key}: etcd"
    if not is_etcd and get(JOBMANAGER_PORT) == 0:
        yield f"{JOBMANAGER_PORT.key}: 0 needs {HA_TYPE.key}: etcd, or nobody finds the JobManager: set a port"
    if bool(get(ETCD_USERNAME)) != bool(get(ETCD_PASSWORD)):
        yield f"{ETCD_USERNAME.key} and {ETCD_PASSWORD.key} go together: set both or none"
    if bool(get(ETCD_TLS_CERT)) != bool(get(ETCD_TLS_KEY)):
        yield f"{ETCD_TLS_CERT.key} and {ETCD_TLS_KEY.key} go together: set both or none"
    if get(ETCD_TLS_CERT) and not get(ETCD_TLS_CA):
        yield f"{ETCD_TLS_CERT.key} needs {ETCD_TLS_CA.key}"


def _embedded(configuration: Configuration) -> Iterator[str]:
    get = configuration.get
    if not get(ETCD_EMBEDDED):
        return
    if get(ETCD_ENDPOINTS):
        yield f"{ETCD_EMBEDDED.key}: true and {ETCD_ENDPOINTS.key} exclude each other: remove one"
    for option in (JOBMANAGER_ADDRESS, JOBMASTER_ADDRESS, TASKMANAGER_HOST):
        if get(option) not in LOCAL_HOSTS:
            yield (
                f"{ETCD_EMBEDDED.key}: true works on one host only, but {option.key} is {get(option)}: "
                f"run an etcd cluster and set {ETCD_ENDPOINTS.key}"
            )


def _timing(configuration: Configuration) -> Iterator[str]:
    get = configuration.get
    if get(HEARTBEAT_TIMEOUT) < 2 * get(HEARTBEAT_INTERVAL):
        yield f"{HEARTBEAT_TIMEOUT.key} must be at least twice {HEARTBEAT_INTERVAL.key}"
    if get(ISOLATION_TIMEOUT) < 3 * get(HEARTBEAT_INTERVAL):
        yield f"{ISOLATION_TIMEOUT.key} must be at least three times {HEARTBEAT_INTERVAL.key}: keys are read that often"
    if get(LEASE_TIMEOUT).total_seconds() < 2:
        yield f"{LEASE_TIMEOUT.key} must be at least 2 s: three renewals have to fit into it"
    if get(ETCD_TIMEOUT) > get(LEASE_TIMEOUT):
        yield f"{ETCD_TIMEOUT.key} must not be longer than {LEASE_TIMEOUT.key}"


def _spark(configuration: Configuration) -> Iterator[str]:
    master = configuration.spark_conf.get("spark.master", "local[*]")
    if master.startswith("sc://"):
        yield f"spark.master: {master}: Spark Connect endpoints are not available yet, use local[*] or spark://host:port"
    elif not _SPARK_MASTER.match(master):
        yield f"spark.master: {master!r}: expected local[*], local[n] or spark://host:port"


def _restarts(configuration: Configuration) -> Iterator[str]:
    if configuration.get(EXPONENTIAL_DELAY_MAX) < configuration.get(EXPONENTIAL_DELAY_INITIAL):
        yield f"{EXPONENTIAL_DELAY_MAX.key} must not be below {EXPONENTIAL_DELAY_INITIAL.key}"

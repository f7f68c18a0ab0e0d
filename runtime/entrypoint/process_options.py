"""From options to the settings that all processes have: network, credentials, etcd, heartbeats.

TaskManagers and JobMaster processes load this module, so it imports nothing of REST or of the JobManager.
"""

from __future__ import annotations

import logging
import math
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.aio.clock import SystemClock
from runtime.common.errors import InvalidInputError
from runtime.common.ids import Incarnation
from runtime.common.watched import Watched
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.option import ConfigOption
from runtime.config.options import cluster as c
from runtime.config.options import high_availability as ha
from runtime.config.options import security
from runtime.config.options import taskmanager as tm
from runtime.entrypoint.control import embedded_etcd as embedded
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.proof_of_death import GuardDialler
from runtime.highavailability.etcd.settings import EtcdSettings
from runtime.highavailability.record_seal import RecordSeal
from runtime.highavailability.services import HighAvailabilitySettings
from runtime.rpc.settings import RpcLimits, RpcSettings
from runtime.security.cluster_key import load_or_create_cluster_key, read_cluster_key
from runtime.security.internal import derived_credential
from runtime.security.tokens import Token, WatchedClusterToken

if TYPE_CHECKING:
    from runtime.security.tls_files import TlsMaterial

logger = logging.getLogger(__name__)

_AUTHENTICATION = security.SECURITY_AUTHENTICATION.key


class EtcdNotRunningError(InvalidInputError):
    """The embedded etcd does not run. The configuration is right."""


def seconds(configuration: Configuration, option: ConfigOption[timedelta]) -> float:
    """A duration in seconds."""
    return configuration.get(option).total_seconds()


def millis(configuration: Configuration, option: ConfigOption[timedelta]) -> int:
    """A duration in milliseconds."""
    return int(seconds(configuration, option) * 1000)


def cluster_token(configuration: Configuration, layout: Layout) -> Token | None:
    """The cluster's token: made when its file is missing, read again when it changes. None without authentication."""
    if configuration.get(security.SECURITY_AUTHENTICATION) == "none":
        if configuration.get(security.SECURITY_ALLOW_UNAUTHENTICATED):
            logger.warning("%s is none, beyond this host too: any client can run code here", _AUTHENTICATION)
        return None
    return WatchedClusterToken(layout.token_file(configuration), SystemClock())


def internal_credential(configuration: Configuration, layout: Layout) -> Token | None:
    """The credential of links between processes (R48), made when its file is missing. None without authentication."""
    if configuration.get(security.SECURITY_AUTHENTICATION) == "none":
        return None
    path = layout.internal_token_file(configuration)
    if path is not None:
        return WatchedClusterToken(path, SystemClock())
    return derived_credential(load_or_create_cluster_key(layout.cluster_key_file(configuration)))


def former_credential(configuration: Configuration, layout: Layout) -> Token | None:
    """The cluster's token, for processes of an earlier release (D-029), None when it is not accepted."""
    if not configuration.get(security.INTERNAL_ACCEPT_TOKEN):
        return None
    logger.warning("%s: every process lets in clients with the cluster's token", security.INTERNAL_ACCEPT_TOKEN.key)
    return cluster_token(configuration, layout)


def internal_tls(configuration: Configuration, address: ConfigOption[str]) -> Watched[TlsMaterial] | None:
    """Certificates of this host for links between processes (R46); None for plain text.

    Raises InvalidInputError, also when other processes would not accept them at `address`.
    """
    get = configuration.get
    if not get(security.SSL_INTERNAL_ENABLED):
        return None
    # Loaded only where it is used: the import takes long.
    from runtime.security.own_certificate import check_own_certificate  # noqa: PLC0415
    from runtime.security.tls_files import TlsFiles, watch_tls  # noqa: PLC0415

    paths = (
        get(option) for option in (security.SSL_INTERNAL_CERT, security.SSL_INTERNAL_KEY, security.SSL_INTERNAL_CA)
    )
    files = TlsFiles("security.ssl.internal", *map(Path, paths))
    watched = watch_tls(files, SystemClock())
    check_own_certificate(files, get(address), address.key, is_mutual=True)
    return watched


def rpc_settings(
    configuration: Configuration,
    layout: Layout,
    incarnation: Incarnation,
    *,
    address: ConfigOption[str],
    bind_host: ConfigOption[str],
    port: ConfigOption[int],
) -> RpcSettings:
    """Address, credentials, limits and certificates of a process."""
    limits = RpcLimits(
        message_size_max=configuration.get(c.RPC_MAX_MESSAGE_SIZE),
        outbox_messages_max=configuration.get(c.RPC_OUTBOX_MAX),
    )
    return RpcSettings(
        incarnation=incarnation,
        credential=internal_credential(configuration, layout),
        former=former_credential(configuration, layout),
        address=configuration.get(address),
        bind_host=configuration.get(bind_host),
        port=configuration.get(port),
        limits=limits,
        tls=internal_tls(configuration, address),
    )


def high_availability_settings(
    configuration: Configuration, layout: Layout, *, makes_key: bool = True
) -> HighAvailabilitySettings:
    """Settings of the durable state. With `makes_key` the cluster's key is made when its file is missing.

    Raises InvalidInputError.
    """
    is_embedded = configuration.get(ha.ETCD_EMBEDDED)
    etcd = seal = None
    if configuration.get(ha.HA_TYPE) == "etcd":
        etcd = _embedded_etcd(configuration, layout) if is_embedded else _external_etcd(configuration)
        path = layout.cluster_key_file(configuration)
        key = load_or_create_cluster_key(path) if makes_key else read_cluster_key(path)
        seal = RecordSeal(key, accepts_unsealed=configuration.get(ha.ETCD_ACCEPT_UNSEALED))  # R38
    return HighAvailabilitySettings(
        cluster_id=configuration.get(ha.HA_CLUSTER_ID),
        lease_ttl=max(1, math.ceil(seconds(configuration, ha.LEASE_TIMEOUT))),
        timeout=seconds(configuration, ha.ETCD_TIMEOUT),
        etcd=etcd,
        is_etcd_embedded=etcd is not None and is_embedded,
        seal=seal,
    )


def _external_etcd(configuration: Configuration) -> EtcdSettings:
    if configuration.get(ha.ETCD_ALLOW_UNAUTHENTICATED):
        logger.warning("%s: every client of etcd can run code in this cluster", ha.ETCD_ALLOW_UNAUTHENTICATED.key)
    if configuration.get(ha.ETCD_USERNAME) and not configuration.get(ha.ETCD_TLS_CA):
        logger.warning(
            "%s is not set: the password of etcd's user and all records cross the network in plain text",
            ha.ETCD_TLS_CA.key,
        )
    return EtcdSettings(
        endpoints=configuration.get(ha.ETCD_ENDPOINTS),
        username=configuration.get(ha.ETCD_USERNAME),
        password=configuration.get(ha.ETCD_PASSWORD),
        tls_ca=configuration.get(ha.ETCD_TLS_CA),
        tls_cert=configuration.get(ha.ETCD_TLS_CERT),
        tls_key=configuration.get(ha.ETCD_TLS_KEY),
        quota_bytes=configuration.get(ha.ETCD_QUOTA),
        allow_unsafe_version=configuration.get(ha.ETCD_ALLOW_UNSAFE),
    )


def _embedded_etcd(configuration: Configuration, layout: Layout) -> EtcdSettings:
    """The embedded etcd of this run directory, with its certificates (R37). Raises EtcdNotRunningError."""
    settings = embedded.EmbeddedEtcdSettings(layout.etcd, layout.etcd_log)
    running = embedded.running(settings)
    if running is None:
        message = f"the embedded etcd of {layout.run} does not run: start it with bin/start-cluster.sh"
        raise EtcdNotRunningError(message)
    if running.is_plain:
        message = (
            f"the embedded etcd of {layout.run} was started by an earlier release, without authentication: "
            "bin/start-cluster.sh replaces it"
        )
        raise EtcdNotRunningError(message)
    if running.warning:
        logger.warning("%s", running.warning)
    client = str(settings.tls.client)
    return EtcdSettings(
        endpoints=(running.endpoint,),
        tls_ca=str(settings.tls.ca),
        tls_cert=client,
        tls_key=client,
        quota_bytes=configuration.get(ha.ETCD_QUOTA),
        # The warning above has told it.
        allow_unsafe_version=True,
    )


def heartbeat_timing(configuration: Configuration) -> HeartbeatTiming:
    """Interval and timeout of heartbeats, in seconds."""
    return HeartbeatTiming(seconds(configuration, c.HEARTBEAT_INTERVAL), seconds(configuration, c.HEARTBEAT_TIMEOUT))


def guard_dialler(configuration: Configuration) -> GuardDialler:
    """The dialler that asks TaskManagers' guards whether they live (R13)."""
    return GuardDialler(timeout=seconds(configuration, c.HEARTBEAT_INTERVAL))


def trusts_refusal(configuration: Configuration) -> bool:
    """True when a refused connection proves that a JobManager or JobMaster process is dead."""
    return configuration.get(c.TRUST_CONNECTION_REFUSED)


def slots_of(configuration: Configuration) -> int:
    """Slots of a TaskManager: `taskmanager.numberOfTaskSlots`, by default the cores of this process."""
    return configuration.get(tm.SLOTS) or cores()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))

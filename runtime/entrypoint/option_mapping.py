"""From options to the settings of what every process has: names on the network, tokens, storage, heartbeats.

A TaskManager and a JobMaster process load this: nothing of REST or of the JobManager belongs here.
"""

from __future__ import annotations

import logging
import math
from datetime import timedelta

from runtime.common.errors import InvalidInputError
from runtime.common.ids import Incarnation
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.option import ConfigOption
from runtime.config.options import cluster as c
from runtime.config.options import high_availability as ha
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.proof_of_death import GuardDialler
from runtime.highavailability import embedded
from runtime.highavailability.etcd.settings import EtcdSettings
from runtime.highavailability.services import HighAvailabilitySettings
from runtime.rpc.settings import RpcLimits, RpcSettings
from runtime.security.tokens import ClusterToken, load_or_create_cluster_token

logger = logging.getLogger(__name__)


def seconds(configuration: Configuration, option: ConfigOption[timedelta]) -> float:
    """A duration in seconds."""
    return configuration.get(option).total_seconds()


def millis(configuration: Configuration, option: ConfigOption[timedelta]) -> int:
    """A duration in milliseconds."""
    return int(seconds(configuration, option) * 1000)


def cluster_token(configuration: Configuration, layout: Layout) -> ClusterToken | None:
    """The cluster's token, made now if nobody has; None without authentication."""
    if configuration.get(c.SECURITY_AUTHENTICATION) == "none":
        return None
    return load_or_create_cluster_token(layout.token_file(configuration))


def rpc_settings(
    configuration: Configuration,
    incarnation: Incarnation,
    token: ClusterToken | None,
    *,
    address: ConfigOption[str],
    bind_host: ConfigOption[str],
    port: ConfigOption[int],
) -> RpcSettings:
    """What a process is on the network."""
    limits = RpcLimits(
        message_size_max=configuration.get(c.RPC_MAX_MESSAGE_SIZE),
        outbox_messages_max=configuration.get(c.RPC_OUTBOX_MAX),
    )
    return RpcSettings(
        incarnation=incarnation,
        cluster_token=token,
        address=configuration.get(address),
        bind_host=configuration.get(bind_host),
        port=configuration.get(port),
        limits=limits,
    )


def high_availability_settings(configuration: Configuration, layout: Layout) -> HighAvailabilitySettings:
    """Where everything durable is."""
    etcd = None
    if configuration.get(ha.HA_TYPE) == "etcd":
        etcd = EtcdSettings(
            endpoints=etcd_endpoints(configuration, layout),
            username=configuration.get(ha.ETCD_USERNAME),
            password=configuration.get(ha.ETCD_PASSWORD),
            tls_ca=configuration.get(ha.ETCD_TLS_CA),
            tls_cert=configuration.get(ha.ETCD_TLS_CERT),
            tls_key=configuration.get(ha.ETCD_TLS_KEY),
            quota_bytes=configuration.get(ha.ETCD_QUOTA),
            # The embedded one is known to be old; etcd_endpoints warns about that.
            allow_unsafe_version=configuration.get(ha.ETCD_ALLOW_UNSAFE) or configuration.get(ha.ETCD_EMBEDDED),
        )
    return HighAvailabilitySettings(
        cluster_id=configuration.get(ha.HA_CLUSTER_ID),
        lease_ttl=max(1, math.ceil(seconds(configuration, ha.LEASE_TIMEOUT))),
        timeout=seconds(configuration, ha.ETCD_TIMEOUT),
        etcd=etcd,
        is_etcd_embedded=etcd is not None and configuration.get(ha.ETCD_EMBEDDED),
    )


def etcd_endpoints(configuration: Configuration, layout: Layout) -> tuple[str, ...]:
    """The configured members, or the embedded etcd of this run directory. Raises InvalidInputError."""
    if not configuration.get(ha.ETCD_EMBEDDED):
        return configuration.get(ha.ETCD_ENDPOINTS)
    settings = embedded.EmbeddedEtcdSettings(layout.etcd, layout.etcd_log)
    running = embedded.running(settings)
    if running is None:
        message = f"the embedded etcd of {layout.run} does not run: start it with bin/start-cluster.sh"
        raise InvalidInputError(message)
    if running.warning:
        logger.warning("%s", running.warning)
    return (running.endpoint,)


def heartbeat_timing(configuration: Configuration) -> HeartbeatTiming:
    """How often and how long."""
    return HeartbeatTiming(seconds(configuration, c.HEARTBEAT_INTERVAL), seconds(configuration, c.HEARTBEAT_TIMEOUT))


def guard_dialler(configuration: Configuration) -> GuardDialler:
    """How TaskManagers' guards are asked whether they live (R13)."""
    return GuardDialler(timeout=seconds(configuration, c.HEARTBEAT_INTERVAL))


def trusts_refusal(configuration: Configuration) -> bool:
    """Does a refused connection prove that a JobManager or JobMaster process is gone?"""
    return configuration.get(c.TRUST_CONNECTION_REFUSED)

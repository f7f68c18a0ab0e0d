"""From options to the settings of the JobManager's components: only its process loads REST and the Dispatcher."""

from __future__ import annotations

from runtime.config.configuration import Configuration
from runtime.config.options import cluster as c
from runtime.config.options import jobmanager as jm
from runtime.config.options.high_availability import BLOB_MAX_SIZE
from runtime.dispatcher.core.jobs import JobRegistryLimits
from runtime.dispatcher.core.planned_moves import MoveSettings
from runtime.dispatcher.core.retention import Retention
from runtime.dispatcher.settings import DispatcherSettings
from runtime.entrypoint import option_mapping as options
from runtime.resourcemanager.endpoint import ResourceManagerSettings
from runtime.rest.server import RestSettings

ARCHIVE_PACK_BYTES = 8 * 1024 * 1024


def dispatcher_settings(configuration: Configuration) -> DispatcherSettings:
    """Settings of a Dispatcher."""
    timing = options.heartbeat_timing(configuration)
    return DispatcherSettings(
        limits=JobRegistryLimits(configuration.get(jm.JOBS_MAX), configuration.get(jm.SUBMITS_MAX)),
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


def resource_manager_settings(configuration: Configuration) -> ResourceManagerSettings:
    """Settings of a ResourceManager."""
    timing = options.heartbeat_timing(configuration)
    return ResourceManagerSettings(timing.interval, timing.timeout)


def rest_settings(configuration: Configuration) -> RestSettings:
    """Settings of the REST endpoint."""
    return RestSettings(
        bind_address=configuration.get(jm.REST_BIND_ADDRESS),
        port=configuration.get(jm.REST_PORT),
        content_length_max=configuration.get(jm.REST_MAX_CONTENT),
    )

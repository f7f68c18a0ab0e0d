"""JobMasterEntryPoint: builds the JobMaster process and runs its container.

Order: transport, store, registration under this process's lease, then the leader. Ready = registered with a leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from jobmaster_process.blob_shared_client import SharedGraphs, make_blob_shared_client
from jobmaster_process.cache_directory import CacheDirectory
from jobmaster_process.container_runner import (
    ContainerSettings,
    ContainerState,
    JobMasterContainerRunner,
    LeaderAddress,
)
from jobmaster_process.load import OwnProcessLoad
from jobmaster_process.registered_load import register_load
from jobmaster_process.secondary_dispatcher import JobMasterSecondaryDispatcher, LoadProbe
from runtime.aio.blocking import BlockingIo
from runtime.aio.scope import Scope, ServiceScope
from runtime.aio.watch import Watch
from runtime.blob.store import BlobStore
from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError
from runtime.common.version import VERSION
from runtime.config.options import cluster as c
from runtime.config.options import high_availability as ha_options
from runtime.config.options import jobmanager as jm
from runtime.config.options.checkpointing import SAVEPOINTS_DIR
from runtime.entrypoint import process_options as options
from runtime.entrypoint.job_masters import fence_keeper, job_manager_runner_factory, serve_job_masters
from runtime.entrypoint.process import ProcessContext
from runtime.entrypoint.process_gateway import OwnProcess
from runtime.entrypoint.storage import open_blob_store, storage_probe
from runtime.gateways.job_manager_runner import JobManagerRunnerFactory
from runtime.heartbeat.service import HeartbeatService
from runtime.highavailability import services as ha_services
from runtime.highavailability.leadership.cluster import ClusterChangedError
from runtime.highavailability.leadership.retrieval import LeaderRetrieval
from runtime.highavailability.records import JobMasterRecord
from runtime.highavailability.services import HighAvailabilityServices
from runtime.jobmaster.registered_task_managers import follow_ends
from runtime.rpc.service import RpcService

logger = logging.getLogger(__name__)

STOP_GRACE = 1.0
LEAVE_TIMEOUT = 6.0
"""Seconds for handing over all jobs: the scripts kill 10 s after SIGTERM. Jobs that are left then are taken over as
those of a lost process."""


class JobMasterEntryPoint:
    """Implements `runtime.entrypoint.process.ClusterProcess`. `make_load` measures this OS process."""

    def __init__(self, make_load: Callable[[Clock], LoadProbe] = OwnProcessLoad) -> None:
        self._make_load = make_load

    async def run(self, context: ProcessContext) -> None:
        """Serve until cancelled."""
        configuration = context.configuration
        if not configuration.get(jm.SINGLE_JOBMASTER):
            message = f"a JobMaster process needs {jm.SINGLE_JOBMASTER.key}: true (jobs run inside the JobManager now)"
            raise InvalidInputError(message)
        while True:
            try:
                await self._run_in_cluster(context)
            except* ClusterChangedError:  # R1
                logger.warning("the store belongs to another cluster than before: everything that runs here is ended")
            # A new incarnation registers: the new cluster has never heard of this process.
            context = replace(context)
            logger.info("starting again as incarnation %s", context.incarnation)

    async def _run_in_cluster(self, context: ProcessContext) -> None:
        """Serve until cancelled. Raises ClusterChangedError in an ExceptionGroup."""
        configuration = context.configuration
        rpc = context.make_rpc(
            options.rpc_settings(
                configuration,
                context.layout,
                context.incarnation,
                address=jm.JOBMASTER_ADDRESS,
                bind_host=jm.JOBMASTER_BIND_HOST,
                port=jm.JOBMASTER_PORT,
            ),
            context.clock,
        )
        io = BlockingIo()
        store = open_blob_store(configuration, context.layout, io, context.clock, context.entropy)
        ha = ha_services.create(
            options.high_availability_settings(configuration, context.layout),
            objects=store,
            clock=context.clock,
            boot_clock=context.boot_clock,
            entropy=context.entropy,
            store=context.store,
            lease_keeper=context.lease_keeper,
            metrics=context.reporting.registry,
        )
        try:
            await ha.start()
            await rpc.start()
            await self._serve(context, rpc, ha, store, io)
        finally:
            await rpc.stop(grace=STOP_GRACE)
            await ha.close()
            io.close()

    async def _serve(
        self,
        context: ProcessContext,
        rpc: RpcService,
        ha: HighAvailabilityServices,
        store: BlobStore,
        io: BlockingIo,
    ) -> None:
        configuration = context.configuration
        leader: Watch[LeaderAddress | None] = Watch(None)
        cache = CacheDirectory(context.layout.work / "jobmaster", context.incarnation)
        await io.run(cache.acquire)
        blobs = make_blob_shared_client(
            cache.path,
            cache_bytes_max=configuration.get(ha_options.BLOB_CACHE_SIZE),
            store=store,
            rpc=rpc,
            blob_address=lambda: None if leader.value is None else leader.value.address,
            io=io,
            entropy=context.entropy,
        )
        await blobs.start()
        heartbeats = HeartbeatService(context.clock)
        record = _record(context, rpc)
        registration = ha.job_master_registration(record)
        heartbeats.judge_while(lambda: registration.is_valid)
        retrieval = ha.leader_retrieval()
        try:
            async with Scope("job-master-process") as scope:
                scope.spawn_eternal("transport", rpc.wait_failed())
                scope.spawn_eternal("job store", ha.wait_failed())
                scope.spawn_eternal("blobs", blobs.wait_failed())
                scope.spawn_eternal("heartbeats", heartbeats.run())
                connections = serve_job_masters(context, rpc, ha, heartbeats)
                scope.spawn_eternal("task-manager-connections", connections.run())
                died, found = connections.task_manager_died, connections.task_manager_found
                scope.spawn_eternal("task-managers", follow_ends(ha.follow_task_managers, died, found))
                fences = fence_keeper(context, ha)
                if fences is not None:
                    scope.spawn_eternal("fences", fences.run())
                runners = job_manager_runner_factory(context, rpc, ha, connections, SharedGraphs(blobs), fences)
                container = self._container(context, rpc, ha, heartbeats, leader, runners, io)
                scope.spawn_eternal("registration", registration.run())
                _ = await registration.registered.wait_until(bool)
                scope.spawn_eternal("retrieval", retrieval.run())
                scope.spawn_eternal("leader", _follow_leader(retrieval, leader))
                scope.spawn_eternal(
                    "load", register_load(registration, record, container, self._make_load(context.clock))
                )
                scope.spawn("container", container.run())
                context.leaving.work, context.leaving.timeout = container.leave, LEAVE_TIMEOUT
                _ = await container.state.wait_until(lambda state: state is ContainerState.READY)
                context.ready({"address": rpc.server.address})
        finally:
            context.leaving.work = None
            await blobs.stop()
            await io.run(cache.remove)

    def _container(
        self,
        context: ProcessContext,
        rpc: RpcService,
        ha: HighAvailabilityServices,
        heartbeats: HeartbeatService,
        leader: Watch[LeaderAddress | None],
        runners: JobManagerRunnerFactory,
        io: BlockingIo,
    ) -> JobMasterContainerRunner:
        capacity = context.configuration.get(jm.JOBMASTER_CAPACITY)

        def make_dispatcher(scope: ServiceScope) -> JobMasterSecondaryDispatcher:
            load = self._make_load(context.clock)
            return JobMasterSecondaryDispatcher(capacity=capacity, scope=scope, runner_factory=runners, load=load)

        timeout = options.seconds(context.configuration, c.RPC_TIMEOUT)
        return JobMasterContainerRunner(
            ContainerSettings(
                context.incarnation,
                capacity,
                timeout,
                stops_jobs=context.configuration.get(jm.JOBMASTER_SHUTDOWN) == "stop",
                savepoints=context.configuration.get(SAVEPOINTS_DIR),
                savepoints_time=LEAVE_TIMEOUT - 2.0,
                metrics_address=context.reporting.address(context.configuration.get(jm.JOBMASTER_ADDRESS)),
                worker_id=context.configuration.get(jm.JOBMASTER_WORKER_ID),
            ),
            rpc=rpc,
            heartbeats=heartbeats,
            leader=leader,
            storage=storage_probe(context.configuration, context.layout, io, context.entropy),
            check_cluster=ha.check_cluster,
            own_process=OwnProcess.of(context.environment),
            make_dispatcher=make_dispatcher,
            clock=context.clock,
            entropy=context.entropy,
        )


def _record(context: ProcessContext, rpc: RpcService) -> JobMasterRecord:
    return JobMasterRecord(
        incarnation=context.incarnation,
        address=rpc.server.address,
        capacity=context.configuration.get(jm.JOBMASTER_CAPACITY),
        jobs=0,
        state=ContainerState.CREATED.name.lower(),
        version=VERSION,
    )


async def _follow_leader(retrieval: LeaderRetrieval, leader: Watch[LeaderAddress | None]) -> None:
    """Tell the container which JobManager leads, as the store says. Eternal."""
    generation = -1
    while True:
        known = await retrieval.leader.wait_changed(generation)
        generation = retrieval.leader.generation
        leader.set(None if known is None else LeaderAddress(known.token, known.record.address))

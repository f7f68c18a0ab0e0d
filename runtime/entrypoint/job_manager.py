"""The JobManager process: `python -m runtime.entrypoint.job_manager [-D key=value ...]`.

ClusterEntrypoint builds what lives as long as the process (transport, store, REST); each leadership term builds its
Dispatcher and ResourceManager through a component factory. REST answers from the start; without a term it says 503.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Protocol

from runtime.aio.blocking import BlockingIo
from runtime.aio.clock import SystemClock
from runtime.aio.periodic import Reconciler
from runtime.aio.scope import Scope
from runtime.aio.watch import Watch
from runtime.blob.server import CHUNK_SOURCE, BlobServer
from runtime.common.fencing import FencingToken
from runtime.config.configuration import Configuration
from runtime.config.loading import parse_dynamic
from runtime.config.options import cluster as c
from runtime.config.options import jobmanager as jm
from runtime.config.options import taskmanager as tm
from runtime.config.options.adaptive_batch import AUTO_PARALLELISM_ENABLED, SCHEDULER
from runtime.config.options.checkpointing import SAVEPOINTS_DIR, STREAM_STALL_TIMEOUT
from runtime.config.options.high_availability import HA_TYPE
from runtime.config.options.resourcemanager import DRIVER
from runtime.config.options.speculation import SPECULATIVE_ENABLED
from runtime.dispatcher.endpoint import Dispatcher
from runtime.dispatcher.leader_process import TermComponents
from runtime.dispatcher.runner import DispatcherRunner
from runtime.dispatcher.savepoint_disposals import PERIOD as DISPOSALS_PERIOD
from runtime.dispatcher.savepoint_disposals import SavepointDisposals
from runtime.dispatcher.savepoint_disposals import Term as DisposingTerm
from runtime.entrypoint import process_options as options
from runtime.entrypoint.component_factories import (
    DispatcherResourceManagerComponentFactory,
    JobManagerServices,
    JobManagerSettings,
    JobMasterPrimaryComponentFactory,
    StandaloneComponentFactory,
)
from runtime.entrypoint.control.daemon import JOBMASTER, TASKMANAGER, DaemonKind
from runtime.entrypoint.drivers.choice import WorkerDriver, make_driver
from runtime.entrypoint.job_manager_events import HISTORY_PERIOD, JobManagerEvents
from runtime.entrypoint.job_manager_metrics import JobManagerMetrics
from runtime.entrypoint.job_manager_options import (
    audit_log,
    dispatcher_settings,
    forward_seal,
    job_master_worker_settings,
    jwt_sign_in,
    limit_settings,
    page_cookie,
    queue_policy,
    resource_manager_settings,
    rest_facts,
    rest_settings,
    rest_tls,
    spark_ui,
    token_providers,
    token_renewal,
)
from runtime.entrypoint.job_master_options import runs_by_split, settled_checkpointing
from runtime.entrypoint.job_masters import fence_keeper, job_manager_runner_factory, serve_job_masters
from runtime.entrypoint.predecessor import Predecessor
from runtime.entrypoint.process import ProcessContext, run_process
from runtime.entrypoint.process_gateway import OwnProcess
from runtime.entrypoint.storage import (
    COLLECTION_PERIOD,
    BlobCollector,
    RestBlobs,
    StoredGraphs,
    history_writer,
    mark_file,
    open_blob_store,
    storage_probe,
)
from runtime.entrypoint.store_view import LeadersStore
from runtime.gateways.process import ProcessGateway
from runtime.gateways.task_executor import PAGE_SECONDS_MAX, TaskExecutorGateway
from runtime.heartbeat.proof_of_death import GuardDialler, ProcessDialler
from runtime.heartbeat.service import HeartbeatService
from runtime.highavailability import services as ha_services
from runtime.highavailability.kv.compaction import LOOK_PERIOD
from runtime.highavailability.kv.follower import patiently
from runtime.highavailability.records import LeaderRecord
from runtime.resourcemanager.endpoint import ResourceManager
from runtime.rest.access.audit import Audit, AuditLog
from runtime.rest.access.principals import Principals
from runtime.rest.access.sign_in import SignIn, TokenSignIn
from runtime.rest.context import LeaderComponents, RestContext
from runtime.rest.server import RestServer, RestSettings
from runtime.security.tokens import Token

logger = logging.getLogger(__name__)

STOP_GRACE = 1.0

MARK_PERIOD = 60.0
"""Seconds between two marks: so much history may be lost without notice when etcd is restored while no process runs."""


class RestFrontend(Protocol):
    """The REST endpoint of a process that leads or stands by: `RestServer`."""

    @property
    def port(self) -> int:
        """The port on which it listens, after `bind`."""

    def bind(self) -> None:
        """Take the port."""

    async def start(self, scope: Scope) -> None:
        """Serve in the background of `scope`."""

    def stop(self) -> None:
        """Refuse new requests."""


class MakeRest(Protocol):
    """`RestServer`'s constructor."""

    def __call__(self, context: RestContext, settings: RestSettings, *, sign_in: SignIn | None) -> RestFrontend: ...


class Application(Protocol):
    """The one job of this cluster (`runtime.entrypoint.application`)."""

    @property
    def begun(self) -> Watch[bool]:
        """True when the job is stored: the process is ready."""

    async def run(self, dispatcher: Dispatcher, url: str, /) -> None:
        """One term of this process. Eternal."""


MakeDriver = Callable[[ProcessContext, DaemonKind, Sequence[str], str], WorkerDriver | None]
"""`make_driver`'s type."""


class ClusterEntrypoint:
    """Implements `ClusterProcess`. `make_rest` makes the REST endpoint, `make_guards` the dialler of guards,
    `make_driver` what starts processes on demand.

    `options` are the -D options of this process: TaskManagers that a driver starts here get the same. `application`:
    the job that this cluster is for; None for a session cluster.
    """

    def __init__(
        self,
        make_rest: MakeRest = RestServer,
        make_guards: Callable[[Configuration], GuardDialler] = options.guard_dialler,
        options: Sequence[str] = (),
        application: Application | None = None,
        make_driver: MakeDriver = make_driver,
    ) -> None:
        self._make_rest = make_rest
        self._make_guards = make_guards
        self._options = tuple(options)
        self._application = application
        self._make_driver = make_driver
        self.driver: WorkerDriver | None = None
        """What starts TaskManagers; None: people and scripts do, or this process has not begun."""

    async def run(self, context: ProcessContext) -> None:
        """Serve until cancelled."""
        configuration = context.configuration
        token = options.cluster_token(configuration, context.layout)
        rpc = context.make_rpc(
            options.rpc_settings(
                configuration,
                context.layout,
                context.incarnation,
                address=jm.JOBMANAGER_ADDRESS,
                bind_host=jm.JOBMANAGER_BIND_HOST,
                port=jm.JOBMANAGER_PORT,
            ),
            context.clock,
        )
        io = BlockingIo()
        blobs = open_blob_store(configuration, context.layout, io, context.clock, context.entropy)
        ha = ha_services.create(
            options.high_availability_settings(configuration, context.layout),
            objects=blobs,
            clock=context.clock,
            boot_clock=context.boot_clock,
            entropy=context.entropy,
            store=context.store,
            lease_keeper=context.lease_keeper,
            metrics=context.reporting.registry,
        )
        if not ha.is_durable:
            logger.warning("high-availability.type is none: jobs are kept in memory, a restart forgets every job")
        try:
            await ha.start()
            mark = ha.store_mark(mark_file(configuration, context.layout, io, context.entropy))
            if ha.is_durable:
                await patiently(mark.check, context.entropy)  # R35
            await rpc.start()
            audit = audit_log(configuration, context.layout, context.environment, context.clock)
            self.driver = self._make_driver(context, TASKMANAGER, self._options, rpc.server.address)
            services = JobManagerServices(
                incarnation=context.incarnation,
                rpc=rpc,
                ha=ha,
                blobs=blobs,
                storage_probe=storage_probe(configuration, context.layout, io, context.entropy),
                heartbeats=HeartbeatService(context.clock),
                guards=self._make_guards(configuration),
                trusts_refusal=options.trusts_refusal(configuration),
                compactor=ha.compactor(),
                mark=mark,
                history=history_writer(configuration, context.layout, io, context.clock, context.entropy),
                token_providers=token_providers(configuration, SystemClock()),
                clock=context.clock,
                entropy=context.entropy,
                driver=self.driver,
                job_master_driver=self._make_driver(context, JOBMASTER, self._options, rpc.server.address),
                tell_cancel=audit.tell_cancel,
                metrics=context.reporting.registry,
                traces=context.tracing.reporter,
            )
            with closing(audit):
                async with Scope("audit") as scope:
                    scope.spawn_eternal("counts", audit.run())
                    await self._serve(context, services, token, audit)
                    scope.cancel_all()
        finally:
            await rpc.stop(grace=STOP_GRACE)
            await ha.close()
            io.close()

    async def _serve(
        self, context: ProcessContext, services: JobManagerServices, token: Token | None, audit: AuditLog
    ) -> None:
        configuration = context.configuration
        blob_server = BlobServer(services.blobs)
        services.rpc.server.add_chunk_source(CHUNK_SOURCE, blob_server.chunk_source)
        async with Scope("job-manager") as scope:
            scope.spawn_eternal("transport", services.rpc.wait_failed())
            scope.spawn_eternal("job store", services.ha.wait_failed())
            scope.spawn_eternal("heartbeats", services.heartbeats.run())
            factory = self._component_factory(context, services, scope)
            leading = _Leading(RestBlobs(blob_server), services, options.seconds(configuration, c.RPC_TIMEOUT))
            principals = None if token is None else Principals(services.ha.principal_store(), context.clock)
            if principals is not None:
                scope.spawn_eternal("principals", principals.run())
            sign_in = _sign_in(context, scope, token, principals)
            rest = _rest(self._make_rest, context, services, leading, sign_in, principals, audit)
            rest.bind()
            record = LeaderRecord(
                context.incarnation,
                services.rpc.server.address,
                f"{configuration.get(jm.REST_ADDRESS)}:{rest.port}",
                context.reporting.address(configuration.get(jm.JOBMANAGER_ADDRESS)),
            )
            predecessor = _predecessor(context, services)
            predecessor.listen()
            election = services.ha.leader_election(record, predecessor.proof_of_death)
            runner = DispatcherRunner(election, factory.create, _preparation(principals))
            leading.runner, leading.rest_address = runner, record.rest_address
            scope.spawn_eternal("leader-retrieval", leading.retrieval.run())
            scope.spawn_eternal("other-leader", leading.follow())
            await rest.start(scope)
            _do_leaders_work(scope, runner, services, leading)
            scope.spawn_eternal("savepoint-disposals", _while_leading(runner, leading.disposing.run))
            scope.spawn_eternal("dispatcher-runner", runner.run())
            facts = rest_facts(configuration, record.rest_address)
            if self._application is not None:
                work = partial(_run_application, self._application, runner, facts["url"])
                scope.spawn_eternal("application", _while_leading(runner, work))
            await self._wait_ready(runner, leading.other, predecessor)
            context.ready({"rpc": record.address, **facts})
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                rest.stop()

    async def _wait_ready(self, runner: DispatcherRunner, other: Watch[str], predecessor: Predecessor) -> None:
        """Return when this JobManager leads, or when another one leads and lives, so that this one stands by."""

        async def stands_by() -> None:
            _ = await predecessor.is_held.wait_until(bool)
            _ = await other.wait_until(bool)

        async def leads() -> None:
            _ = await runner.leading.wait_until(lambda term: term is not None)
            if self._application is not None:
                _ = await self._application.begun.wait_until(bool)

        async with Scope("first-leader") as scope:
            other_leads = scope.start("other", stands_by())
            self_leads = scope.start("self", leads())
            _ = await asyncio.wait({other_leads, self_leads}, return_when=asyncio.FIRST_COMPLETED)
            scope.cancel_all()

    def _component_factory(
        self, context: ProcessContext, services: JobManagerServices, scope: Scope
    ) -> DispatcherResourceManagerComponentFactory:
        configuration = context.configuration
        settings = JobManagerSettings(
            dispatcher_settings(configuration),
            resource_manager_settings(configuration, context.layout),
            options.seconds(configuration, tm.ISOLATION_TIMEOUT),
            token_renewal(configuration),
            partial(settled_checkpointing, configuration),
            job_master_worker_settings(configuration),
        )
        if configuration.get(jm.SINGLE_JOBMASTER):
            return JobMasterPrimaryComponentFactory(services, settings)
        connections = serve_job_masters(context, services.rpc, services.ha, services.heartbeats)
        scope.spawn_eternal("task-manager-connections", connections.run())
        graphs = StoredGraphs(services.blobs)
        fences = fence_keeper(context, services.ha)
        if fences is not None:
            scope.spawn_eternal("fences", fences.run())
        runners = job_manager_runner_factory(context, services.rpc, services.ha, connections, graphs, fences)
        return StandaloneComponentFactory(services, settings, runners, connections)


class _Leading:
    """The components of this process's term, for REST; and the REST address of another leader."""

    def __init__(self, blobs: RestBlobs, services: JobManagerServices, rpc_timeout: float) -> None:
        self._blobs = blobs
        self._incarnation = services.incarnation
        self._jars = services.ha.jar_store()
        self.retrieval = services.ha.leader_retrieval()
        self.runner: DispatcherRunner | None = None
        self.rest_address = ""
        self.other: Watch[str] = Watch("")
        """REST address of the leader when that is another process, else ""."""

        def task_executor(address: str) -> TaskExecutorGateway:
            return services.rpc.connect(
                TaskExecutorGateway, address, target=None, sender=self.token, timeout=rpc_timeout
            )

        self.disposals = SavepointDisposals(self._disposing_term, task_executor, services.clock)
        self.disposing = Reconciler("job-manager/savepoint-disposals", self.disposals.activate, period=DISPOSALS_PERIOD)
        self.disposals.wake = self.disposing.signal

    def _disposing_term(self) -> DisposingTerm | None:
        components = self()
        if components is None or (term := self._term()) is None or (store := term.dispatcher.disposals) is None:
            return None
        addresses = [one.registration.address for one in components.resource_manager.task_managers()]
        return DisposingTerm(term.dispatcher, store, addresses)

    async def follow(self) -> None:
        """Keep `other` up to date. Eternal."""
        generation = -1
        while True:
            leader = await self.retrieval.leader.wait_changed(generation)
            generation = self.retrieval.leader.generation
            is_other = leader is not None and leader.record.incarnation != self._incarnation
            address = leader.record.rest_address if leader is not None and is_other else ""
            if address != self.other.value:
                self.other.set(address)

    @property
    def token(self) -> FencingToken | None:
        """This process's term (R1), None while it does not lead."""
        term = self._term()
        return None if term is None else term.dispatcher.token

    def __call__(self) -> LeaderComponents | None:
        """None while this process does not lead."""
        term = self._term()
        if term is None:
            return None
        resource_manager = term.resource_manager
        assert isinstance(resource_manager, ResourceManager), resource_manager
        return LeaderComponents(
            term.dispatcher,
            resource_manager,
            self._blobs,
            self._jars,
            self.rest_address,
            term.dispatcher.events,
            self.disposals,
        )

    def stand_bys(self) -> Sequence[str]:
        """REST addresses of the JobManagers that stand by."""
        leader = self.retrieval.leader.value
        leading = None if leader is None else leader.record.incarnation
        return [one.rest_address for one in self.retrieval.candidates if one.incarnation != leading]

    def _term(self) -> TermComponents | None:
        """The term; None when a later leader is known. A process whose lease was revoked may hear of its successor
        before it renews its lease."""
        term = None if self.runner is None else self.runner.serving
        latest = self.retrieval.leader.value
        if term is not None and latest is not None and latest.epoch > term.dispatcher.token.revision:
            return None
        return term


def _sign_in(
    context: ProcessContext, scope: Scope, token: Token | None, principals: Principals | None
) -> SignIn | None:
    """The sign-in of REST clients, None without authentication."""
    if token is None or principals is None:
        return None
    return TokenSignIn(token, principals, jwt_sign_in(context.configuration, context.clock, scope))


def _preparation(principals: Principals | None) -> Callable[[], Awaitable[None]]:
    """The first step of a term: it reads all principals, so that tokens revoked by the last leader end (R48)."""

    async def nothing() -> None:
        """There are no principals."""

    return nothing if principals is None else principals.catch_up


def _rest(
    make: MakeRest,
    context: ProcessContext,
    services: JobManagerServices,
    leading: _Leading,
    sign_in: SignIn | None,
    principals: Principals | None,
    audit: Audit,
) -> RestFrontend:
    """The one place where the REST endpoint is built."""
    configuration = context.configuration
    timeout = options.seconds(configuration, c.RPC_TIMEOUT)
    own_process = OwnProcess.of(context.environment)

    def task_executor(address: str) -> TaskExecutorGateway:
        return services.rpc.connect(TaskExecutorGateway, address, target=None, sender=leading.token, timeout=timeout)

    def maker_of_pages(address: str) -> TaskExecutorGateway:
        patience = max(timeout, PAGE_SECONDS_MAX)
        return services.rpc.connect(TaskExecutorGateway, address, target=None, sender=leading.token, timeout=patience)

    def process(address: str) -> ProcessGateway:
        if address == services.rpc.server.address:  # a JobMaster process that is this one
            return own_process
        return services.rpc.connect(ProcessGateway, address, target=None, sender=leading.token, timeout=timeout)

    rest_context = RestContext(
        leader=leading,
        other_leader=leading.other,
        task_executor=task_executor,
        process=process,
        own_process=own_process,
        clock=context.clock,
        configuration=configuration.shown(),
        speculates=configuration.get(SPECULATIVE_ENABLED),
        scheduler=configuration.get(SCHEDULER),
        chooses_parallelism=configuration.get(AUTO_PARALLELISM_ENABLED),
        long_poll_max=options.seconds(configuration, jm.REST_LONG_POLL_MAX),
        rpc_timeout=timeout,
        refresh_interval_millis=options.millis(configuration, jm.WEB_REFRESH_INTERVAL),
        principals=principals,
        audit=audit,
        limits=limit_settings(configuration),
        queues=queue_policy(configuration),
        driver=configuration.get(DRIVER),
        forward_seal=forward_seal(configuration, context.layout),
        frame_ancestors=configuration.get(jm.WEB_FRAME_ANCESTORS),
        page_cookie=page_cookie(configuration, context.layout, context.clock),
        tls=rest_tls(configuration),
        metrics=_metrics(context, leading),
        stand_bys=leading.stand_bys,
        store=LeadersStore(configuration.get(HA_TYPE), services.ha, services.compactor),
        savepoint_directory=configuration.get(SAVEPOINTS_DIR),
        runs_by_split=runs_by_split(configuration),
        stream_stall_millis=options.millis(configuration, STREAM_STALL_TIMEOUT),
        spark_ui=spark_ui(configuration, context.clock, maker_of_pages),
        new_trace=context.tracing.new_trace,
    )
    return make(rest_context, rest_settings(configuration), sign_in=sign_in)


def _metrics(context: ProcessContext, leading: _Leading) -> JobManagerMetrics | None:
    if not context.reporting.registry.is_on:
        return None
    return JobManagerMetrics(context.reporting, leading, leading.retrieval, context.clock)


def _predecessor(context: ProcessContext, services: JobManagerServices) -> Predecessor:
    guards, rpc = services.guards, services.rpc
    dialler = ProcessDialler(rpc.identify, services.trusts_refusal, guards.timeout)
    return Predecessor(context.incarnation, rpc, dialler.prove_death, services.entropy, timeout=guards.timeout)


def _do_leaders_work(scope: Scope, runner: DispatcherRunner, services: JobManagerServices, leading: _Leading) -> None:
    """What a leader does beside its components, in every term of this process."""
    events = JobManagerEvents(runner, leading.retrieval, services.compactor, services.history)
    scope.spawn_eternal("candidates", _while_leading(runner, events.follow_candidates))
    work: dict[str, tuple[Callable[[], Awaitable[object]], float]] = {
        "compaction": (events.compact, LOOK_PERIOD),
        "blob-collection": (BlobCollector(services.blobs, services.ha).activate, COLLECTION_PERIOD),
        "history": (services.history.bound, COLLECTION_PERIOD),
        "waiting-history": (events.carry_history, HISTORY_PERIOD),
    }
    if services.ha.is_durable:
        work["store-mark"] = (services.mark.note, MARK_PERIOD)
    for name, (activate, period) in work.items():
        reconciler = Reconciler(f"job-manager/{name}", activate, period=period)
        scope.spawn_eternal(name, _while_leading(runner, reconciler.run))


async def _run_application(application: Application, runner: DispatcherRunner, url: str) -> None:
    term = await runner.leading.wait_until(lambda term: term is not None)
    assert term is not None
    await application.run(term.dispatcher, url)


async def _while_leading(runner: DispatcherRunner, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` in every term of this process. Eternal."""
    while True:
        _ = await runner.leading.wait_until(lambda term: term is not None)
        async with Scope("leading") as scope:
            scope.spawn_eternal("work", work())
            _ = await runner.leading.wait_until(lambda term: term is None)
            scope.cancel_all()


def main() -> int:
    """Run a JobManager; the exit code."""
    arguments = sys.argv[1:]

    def make() -> ClusterEntrypoint:
        return ClusterEntrypoint(options=parse_dynamic(arguments))

    return run_process("jobmanager", make, arguments, has_lease=True)


if __name__ == "__main__":
    sys.exit(main())

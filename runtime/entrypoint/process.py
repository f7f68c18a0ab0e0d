"""The frame of every process of the cluster: arguments, configuration, logging, signals, exit code.

Exit codes: 1 = the start failed, with one sentence on stderr; 2 = the process failed while it served; 3 = the guard
starts it again under a new incarnation; 143 / 130 = stopped by SIGTERM / SIGINT; 0 = it had no work left, or has handed
over all its work when it was asked to stop; 163 / 165 = the job of an application has failed / is not known any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from runtime.aio.clock import BootClock, LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.aio.scope import Scope, ServiceScope
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import FlinklikeError, InvalidInputError, PermanentError
from runtime.common.ids import Incarnation
from runtime.common.printable import printable
from runtime.common.version import VERSION
from runtime.config import log_files
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.loading import load, parse_dynamic
from runtime.config.options.cluster import LOG_FORMAT, LOG_LEVEL, LOG_MAX
from runtime.entrypoint.control.daemon import LOG_FILE_VARIABLE
from runtime.entrypoint.keeper_process import KeeperProcess, fork_keeper
from runtime.entrypoint.logging_setup import FORMAT, JsonFormatter, PrintableFormatter, set_up_logging
from runtime.entrypoint.metrics import process_reporting
from runtime.entrypoint.open_directories import open_directories
from runtime.entrypoint.ready import report_ready
from runtime.entrypoint.signals import StopSignal, stop_signals
from runtime.entrypoint.traces import NO_TRACING, Tracing, process_tracing
from runtime.highavailability.kv.keeper import NO_KEEPER, LeaseKeeper
from runtime.highavailability.kv.key_value_store import KeyValueStore
from runtime.metrics.reporting import NO_REPORTING, Reporting
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.service import RpcService
from runtime.rpc.settings import RpcSettings
from runtime.security.file_mask import keep_files_private, make_private
from runtime.system.linux import refuse_tracing
from runtime.taskexecutor.guard.channel import EXIT_START_AGAIN

logger = logging.getLogger(__name__)

EXIT_START_FAILURE = 1
EXIT_RUNTIME_FAILURE = 2
STOP_DEADLINE = 8.0
"""Seconds for an orderly stop; the scripts kill after 10."""
_PRINTS_INTERVAL = 1.0
"""Seconds. gRPC prints a line for each wrong byte of a client without a token: up to 35 MB a second (R52)."""


class StartRefusedError(PermanentError):
    """The process does not start, with this sentence."""


class NewLifeError(PermanentError):
    """This life of the process ends, and its guard starts another one, under a new incarnation (R1, R14)."""


@dataclass(slots=True)
class Leaving:
    """The work of a process between a stop signal and its cancellation, for at most `timeout` seconds.

    Set by a process that has something to hand over. `work` returns True when it has handed over everything.
    """

    work: Callable[[], Awaitable[bool]] | None = None
    timeout: float = 0.0


@dataclass
class ProcessContext:
    """The environment of a process. `store` replaces the configured etcd.

    `boot_clock` goes on while the host is suspended: deadlines for which other hosts wait too are on it (R14).
    `lease_keeper` renews the lease of this process (R40). `reporting` has its metrics (D-110), `tracing`
    its traces (D-114). `exit_code` is that of a process that has no work left.
    """

    configuration: Configuration
    layout: Layout
    environment: Mapping[str, str]
    make_rpc: Callable[[RpcSettings, Clock], RpcService] = GrpcRpcService
    clock: Clock = field(default_factory=LoopClock)
    boot_clock: Clock = field(default_factory=BootClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    store: KeyValueStore | None = None
    lease_keeper: LeaseKeeper = NO_KEEPER
    reporting: Reporting = NO_REPORTING
    tracing: Tracing = NO_TRACING
    is_ready: bool = False
    exit_code: int = 0
    leaving: Leaving = field(default_factory=Leaving)
    incarnation: Incarnation = field(init=False)

    def __post_init__(self) -> None:
        self.incarnation = Incarnation(self.entropy.hex_id())

    def ready(self, facts: Mapping[str, str]) -> None:
        """Called when the process begins to serve: logs `facts`, and writes them to the ready file."""
        self.is_ready = True
        logger.info("ready: %s", ", ".join(f"{key} {value}" for key, value in facts.items()))
        report_ready(self.environment, facts)


class ClusterProcess(Protocol):
    """One kind of process."""

    async def run(self, context: ProcessContext) -> None:
        """Start, call `context.ready`, serve until cancelled, then stop in order."""


def run_process(
    name: str, make: Callable[[], ClusterProcess], arguments: Sequence[str], *, has_lease: bool = False
) -> int:
    """Run one process to its end. Returns the exit code. A process that `has_lease` gets a lease keeper."""
    if sys.flags.optimize:
        return _refuse(f"{name} does not run under python -O: its assertions are part of it")
    environment = os.environ
    keep_files_private(environment)
    refuse_tracing()  # R50
    layout = Layout.from_environment(environment)
    try:
        configuration = load(layout.conf, environment=environment, dynamic=parse_dynamic(arguments))
    except InvalidInputError as error:
        return _refuse(str(error))
    try:
        mended = make_private(layout.run)
    except OSError as error:
        return _refuse(f"the run directory cannot be used: {error}")
    if has_lease:
        _allow_connections()
    # Forked before this process has threads, connections and a log.
    keeper = fork_keeper(configuration, layout) if has_lease else None
    formatter = JsonFormatter(name) if configuration.get(LOG_FORMAT) == "json" else PrintableFormatter(FORMAT)
    level, files_max = configuration.get(LOG_LEVEL), configuration.get(LOG_MAX)
    set_up_logging(environment, level=level, files_max=files_max, formatter=formatter)
    for sentence in (*([mended] if mended else []), *open_directories(configuration, layout)):
        logger.warning("%s", sentence)
    try:
        context = _context(name, configuration, layout, environment, keeper or NO_KEEPER)
        logger.info("%s %s starts (pid %d, incarnation %s)", name, VERSION, os.getpid(), context.incarnation)
        return asyncio.run(_supervise(name, make, context, keeper))
    except StartRefusedError as error:
        return _refuse(str(error))
    finally:
        if keeper is not None:
            keeper.stop()


def _context(
    name: str, configuration: Configuration, layout: Layout, environment: Mapping[str, str], keeper: LeaseKeeper
) -> ProcessContext:
    """Raises StartRefusedError when the metrics or traces that are asked for cannot be had."""
    try:
        context = ProcessContext(configuration, layout, environment, lease_keeper=keeper)
        reporting = context.reporting = process_reporting(name, configuration, context.incarnation)
        context.tracing = process_tracing(name, configuration, context.incarnation, reporting.registry)
    except FlinklikeError as error:
        logger.error("%s did not start: %s", name, error)  # noqa: TRY400 - one line says it
        raise StartRefusedError(str(error)) from error
    if reporting.port:
        logger.info("metrics are served at http://%s/metrics", reporting.address("localhost"))
    if reporting.registry.is_on:
        context.make_rpc = partial(GrpcRpcService, metrics=reporting.registry)
    return context


def _allow_connections() -> None:
    """Raise the limit of descriptors as far as allowed: a flood uses up the usual 1024 within a second (R39).

    Not in processes that run user code, which may use select().
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _supervise(
    name: str, make: Callable[[], ClusterProcess], context: ProcessContext, keeper: KeeperProcess | None = None
) -> int:
    scope = ServiceScope(name)
    await scope.open()
    if keeper is not None:
        scope.spawn("lease-keeper", keeper.watch())
    with stop_signals(lambda: context.leaving.work is not None) as stop:
        main = scope.start("main", _outcome(make, context))
        stopping = scope.start("stop", stop.wait())
        scope.spawn("logs", _bound_prints(context))
        if context.reporting.run is not None:
            scope.spawn("metrics", context.reporting.run(context.clock))
        if context.tracing.run is not None:
            scope.spawn("traces", context.tracing.run())
        _ = await asyncio.wait({main, stopping}, return_when=asyncio.FIRST_COMPLETED)
        has_left = False
        if not main.done():
            has_left = await leave(main, stop, context.leaving)
            main.cancel()
            _ = await asyncio.wait({main}, timeout=STOP_DEADLINE)
            if not main.done():
                logger.error("the orderly stop took longer than %.0f s: ending at once", STOP_DEADLINE)
                logging.shutdown()
                os._exit(stop.exit_code)
        failure = None if main.cancelled() else main.result()
        await scope.close()
    if failure is not None:
        return _failed(name, failure, is_ready=context.is_ready)
    logger.info("%s has stopped", name)
    return context.exit_code if has_left else stop.exit_code or context.exit_code


async def leave(main: asyncio.Task[Any], stop: StopSignal, leaving: Leaving) -> bool:
    """Let a process whose `main` runs hand over its work; True when it could. A second signal ends the wait."""
    if leaving.work is None or not stop.is_patient:
        return False
    async with Scope("leave") as scope:
        work = scope.start("work", _left(leaving.work, leaving.timeout))
        insisting = scope.start("insist", stop.insisted())
        _ = await asyncio.wait({main, work, insisting}, return_when=asyncio.FIRST_COMPLETED)
        scope.cancel_all()
    return not work.cancelled() and work.result()


async def _left(work: Callable[[], Awaitable[bool]], timeout: float) -> bool:
    try:
        async with asyncio.timeout(timeout):
            return await work()
    except TimeoutError:
        logger.warning("not everything could be handed over within %.0f s", timeout)
    except Exception:  # the boundary of the leave: the stop goes on without it
        logger.exception("handing over failed")
    return False


async def _bound_prints(context: ProcessContext) -> None:
    """Cut the output files of this process, its Spark and the embedded etcd. Python's log file is rotated elsewhere."""
    log_file = context.environment.get(LOG_FILE_VARIABLE)
    if not log_file:
        return
    path, told = Path(log_file), ""
    while True:
        await asyncio.sleep(_PRINTS_INTERVAL)
        printed = [path.with_suffix(".out"), context.layout.etcd_log, *path.parent.glob(f"{path.stem}-spark-*.log")]
        try:
            await asyncio.to_thread(log_files.cut_large, printed)
        except OSError as error:
            if str(error) != told:
                logger.warning("large output files cannot be cut: %s", error)
            told = str(error)


async def _outcome(make: Callable[[], ClusterProcess], context: ProcessContext) -> BaseException | None:
    """The error of the process as a value: the supervisor turns it into a sentence and an exit code."""
    try:
        await make().run(context)
    except Exception as error:  # noqa: BLE001 - the boundary of the process: _failed logs it
        return error
    return None


def _failed(name: str, failure: BaseException, *, is_ready: bool) -> int:
    cause = first_cause(failure)
    is_expected = isinstance(cause, FlinklikeError)
    if isinstance(cause, NewLifeError):
        logger.error("%s begins again: %s", name, cause)
        return EXIT_START_AGAIN
    if is_ready:
        logger.critical("%s failed", name, exc_info=failure)
        _refuse(f"{name} failed: {cause}")
        return EXIT_RUNTIME_FAILURE
    if not is_expected:
        logger.critical("%s did not start", name, exc_info=failure)
        return _refuse(f"{name} did not start because of an error of its own: {type(cause).__name__}: {cause}")
    logger.error("%s did not start: %s", name, cause)
    return _refuse(str(cause))


def first_cause(failure: BaseException) -> BaseException:
    """The first error in a group of errors, however deep; an error that is no group as it is."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def _refuse(sentence: str) -> int:
    sys.stderr.write(printable(sentence) + "\n")
    sys.stderr.flush()
    return EXIT_START_FAILURE

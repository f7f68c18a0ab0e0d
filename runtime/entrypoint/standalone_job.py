"""`python -m runtime.entrypoint.standalone_job --job TARGET [-D key=value ...] [-- arguments]`: a cluster for one job.

JobManager, JobMaster and the submit of the job are in this process, which ends when the job has ended: with 0 after
FINISHED and CANCELED, 163 after FAILED, 165 when the store does not know the job any more.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from pathlib import Path

from runtime.aio.scope import Scope
from runtime.common.errors import InvalidInputError
from runtime.common.printable import printable
from runtime.config.configuration import Configuration
from runtime.config.options.high_availability import HA_CLUSTER_ID, HA_TYPE
from runtime.config.options.jobmanager import SHUTDOWN_ON_ATTACHED_EXIT, SHUTDOWN_ON_FINISH
from runtime.config.options.taskmanager import CANCELLATION_TIMEOUT
from runtime.entrypoint.application import (
    ApplicationDispatcherBootstrap,
    ApplicationEnd,
    JobBuilder,
    application_job_id,
    application_problems,
)
from runtime.entrypoint.control.job_command import JobCommand, parse_job_command
from runtime.entrypoint.job_manager import ClusterEntrypoint
from runtime.entrypoint.process import EXIT_START_FAILURE, ProcessContext, run_process
from runtime.entrypoint.ready import forget_ready
from runtime.entrypoint.signals import stop_with_standard_input
from runtime.resourcemanager.driver import DriverError

logger = logging.getLogger(__name__)

REST_STAYS = 2.0
"""Seconds between the end of the job and that of REST: a client that waits hears of it, and asks for the result."""
_CANCEL_MARGIN = 30.0


class StandaloneJob:
    """Implements `ClusterProcess`."""

    def __init__(self, command: JobCommand) -> None:
        self._command = command
        self._is_leaving = asyncio.Event()
        self._has_ended = asyncio.Event()

    async def run(self, context: ProcessContext) -> None:
        """Serve until the job has ended, or until cancelled."""
        configuration = context.configuration
        if problems := tuple(application_problems(configuration)):
            raise InvalidInputError("\n".join(problems), problems)
        builder = JobBuilder(self._command, configuration, context.layout, context.environment)
        job_id = application_job_id(configuration.get(HA_CLUSTER_ID))
        application = ApplicationDispatcherBootstrap(job_id, builder.submit, context.clock, _say)
        cluster = ClusterEntrypoint(options=self._command.cluster_options(), application=application)
        is_durable = configuration.get(HA_TYPE) != "none"
        if not is_durable:
            context.leaving.timeout = configuration.get(CANCELLATION_TIMEOUT).total_seconds() + _CANCEL_MARGIN
            context.leaving.work = partial(self._leave, application)
        if configuration.get(SHUTDOWN_ON_ATTACHED_EXIT):
            stop_with_standard_input()
        try:
            async with Scope("standalone-job") as scope:
                scope.spawn_eternal("cluster", cluster.run(context))
                context.exit_code = (await self._end_of(application, configuration)).exit_code
                scope.cancel_all()
        finally:
            forget_ready(context.environment)
            if application.ended.value is not None or not is_durable:
                await _end_workers(cluster)
        if self._is_leaving.is_set():
            self._has_ended.set()
            await asyncio.get_running_loop().create_future()  # the stop ends the process, with our exit code

    async def _end_of(
        self, application: ApplicationDispatcherBootstrap, configuration: Configuration
    ) -> ApplicationEnd:
        """Wait for the moment in which this process has to end. Raises nothing of its own."""
        ended = await application.ended.wait_until(lambda end: end is not None)
        assert ended is not None
        if not configuration.get(SHUTDOWN_ON_FINISH):
            _ = await self._is_leaving.wait()
        else:
            await asyncio.sleep(REST_STAYS)
        return ended

    async def _leave(self, application: ApplicationDispatcherBootstrap) -> bool:
        """Cancel the job, and wait until all that belongs to it has ended."""
        if not await application.cancel():
            return False
        self._is_leaving.set()
        _ = await self._has_ended.wait()
        return True


async def _end_workers(cluster: ClusterEntrypoint) -> None:
    """End the TaskManagers that this cluster has started on this host."""
    if cluster.driver is None:
        return
    try:
        await cluster.driver.end_workers()
    except DriverError as error:
        logger.error("TaskManagers of this cluster may run on: %s", error)  # noqa: TRY400 - one line says it


def _say(line: str) -> None:
    sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the cluster of one job; the exit code."""
    try:
        command = parse_job_command(sys.argv[1:], Path.cwd())
    except InvalidInputError as error:
        sys.stderr.write(f"{printable(str(error))}\n")
        return EXIT_START_FAILURE
    options = [word for text in command.cluster_options() for word in ("-D", text)]
    return run_process("standalonejob", lambda: StandaloneJob(command), options, has_lease=True)


if __name__ == "__main__":
    sys.exit(main())

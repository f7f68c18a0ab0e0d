"""`bin/commit-outputs.sh [-D key=value ...] [--job-is-over] ...`: runs `repeat_commit` for a job that is over.

It asks the etcd of this host's configuration whether the job is over, as a TaskManager would (R27).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from runtime.aio.clock import SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.errors import FlinklikeError, InvalidInputError, UnavailableError
from runtime.common.ids import JobId
from runtime.common.printable import printable
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.loading import load, parse_dynamic
from runtime.entrypoint import process_options as options
from runtime.highavailability.keys import Keys
from runtime.highavailability.leadership.cluster import stored_cluster
from runtime.highavailability.services import HighAvailabilitySettings, opened_store
from runtime.taskexecutor.outputs import repeat_commit
from runtime.taskexecutor.outputs.repeat_commit import KnownJob


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    rest, dynamic = _split(arguments)
    layout = Layout.from_environment(os.environ)
    try:
        configuration = load(layout.conf, environment=os.environ, dynamic=parse_dynamic(dynamic))
    except InvalidInputError as error:
        sys.stderr.write(f"{printable(str(error))}\n")
        return 2

    async def ask(job_id: JobId) -> KnownJob:
        return await _ask(job_id, _settings(configuration, layout))

    return repeat_commit.main(rest, ask)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    rest: list[str] = []
    dynamic: list[str] = []
    waiting = list(arguments)
    while waiting:
        one = waiting.pop(0)
        if one == "-D" and waiting:
            dynamic += [one, waiting.pop(0)]
        else:
            (dynamic if one.startswith("-D") else rest).append(one)
    return rest, dynamic


def _settings(configuration: Configuration, layout: Layout) -> HighAvailabilitySettings:
    try:
        return options.high_availability_settings(configuration, layout, makes_key=False)
    except options.EtcdNotRunningError as error:
        raise UnavailableError(str(error)) from error


async def _ask(job_id: JobId, settings: HighAvailabilitySettings) -> KnownJob:
    """The state of the job in etcd, read linearizably. Writes nothing."""
    if settings.etcd is None:
        message = "high-availability.type is none: only the JobManager knows its jobs"
        raise UnavailableError(message)
    keys, timeout = Keys.of_cluster(settings.cluster_id), settings.timeout
    async with opened_store(settings, SystemClock(), SystemEntropy()) as kv:

        async def is_there(key: str) -> bool:
            return bool((await kv.range(key, is_prefix=False, timeout=timeout)).kvs)

        cluster = await stored_cluster(kv, keys, timeout=timeout)
        if cluster is None:
            message = f"etcd holds none that is called {settings.cluster_id} (high-availability.cluster-id)"
            raise UnavailableError(message)
        graph = await is_there(keys.graph(job_id))  # before the result: cleaning deletes the graph
        is_over = await is_there(keys.result(job_id)) or await is_there(keys.done(job_id))
        return KnownJob(cluster, is_going_on=graph and not is_over, is_over=is_over)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except FlinklikeError as error:
        sys.exit(printable(str(error)))

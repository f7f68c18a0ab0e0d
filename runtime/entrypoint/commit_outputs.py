"""`bin/commit-outputs.sh [-D key=value ...] [--job-is-over] ...`: what `repeat_commit` does, when the job is over.

The cluster that is asked is the one whose etcd the configuration of this host names, as its TaskManagers ask it (R27).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from runtime.aio.clock import BootClock, SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.blob.blocking import BlockingIo
from runtime.common.errors import FlinklikeError, UnavailableError
from runtime.common.ids import JobId
from runtime.config.configuration import load, parse_dynamic
from runtime.config.layout import Layout
from runtime.entrypoint import option_mapping as options
from runtime.entrypoint.storage import open_blob_store
from runtime.highavailability import services as ha_services
from runtime.taskexecutor import repeat_commit
from runtime.taskexecutor.repeat_commit import KnownJob


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    rest, dynamic = _split(arguments)

    async def ask(job_id: JobId) -> KnownJob:
        return await _ask(job_id, dynamic)

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


async def _ask(job_id: JobId, dynamic: Sequence[str]) -> KnownJob:
    """What is stored of the job, read linearizably."""
    layout = Layout.from_environment(os.environ)
    configuration = load(layout.conf, environment=os.environ, dynamic=parse_dynamic(dynamic))
    settings = options.high_availability_settings(configuration, layout)
    if settings.etcd is None:
        message = "high-availability.type is none, and its jobs are known to nobody but the JobManager"
        raise UnavailableError(message)
    clock, entropy, io = SystemClock(), SystemEntropy(), BlockingIo()
    blobs = open_blob_store(configuration, layout, io, clock, entropy)
    ha = ha_services.create(settings, objects=blobs, clock=clock, boot_clock=BootClock(), entropy=entropy)
    try:
        await ha.start()
        keys = (ha.keys.graph(job_id), ha.keys.result(job_id), ha.keys.done(job_id))
        graph, result, done = [
            bool((await ha.kv.range(key, is_prefix=False, timeout=settings.timeout)).kvs) for key in keys
        ]
        return KnownJob(ha.cluster, is_going_on=graph and not (result or done), is_over=result or done)
    finally:
        await ha.close()
        io.close()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except FlinklikeError as error:
        sys.exit(str(error))

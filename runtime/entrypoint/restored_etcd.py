"""`bin/restored-etcd.sh` (R35): prepares a cluster for a new start after its etcd was restored from a snapshot.

etcd knows nothing of jobs that have ended, and of tasks that have run, since the snapshot. So each job without a result
is to be cancelled, with that reason, unless the operator knows that nothing is lost (`--keep-jobs`). The cluster gets a
new uuid, so that a process that still runs somewhere stops its work (R1), and all TaskManagers are forgotten. The mark
in the storage is written last. The script may be repeated.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from runtime.aio.blocking import BlockingIo
from runtime.aio.clock import BootClock, SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.clock import Deadline
from runtime.common.errors import FlinklikeError, PermanentError
from runtime.common.printable import printable
from runtime.config.layout import Layout
from runtime.config.loading import load, parse_dynamic
from runtime.config.options.high_availability import LEASE_TIMEOUT
from runtime.entrypoint import process_options as options
from runtime.entrypoint.storage import mark_file, open_blob_store
from runtime.highavailability import services as ha_services
from runtime.highavailability.restored_store import RestoredStore

_LEASES_FACTOR = 3


def main(arguments: Sequence[str]) -> int:
    """The command line; exit code 1 with one sentence when it fails."""
    parser = argparse.ArgumentParser(
        prog="restored-etcd.sh", description="Let a cluster begin again whose etcd was restored from a snapshot."
    )
    parser.add_argument(
        "--keep-jobs", action="store_true", help="no job has run since the snapshot: unfinished jobs go on"
    )
    given, dynamic = parser.parse_known_args(arguments)
    try:
        sys.stdout.write(f"{asyncio.run(_accept(dynamic, keep_jobs=given.keep_jobs))}\n")
    except FlinklikeError as error:
        sys.stderr.write(f"{printable(str(error))}\n")
        return 1
    return 0


async def _accept(dynamic: Sequence[str], *, keep_jobs: bool) -> str:
    layout = Layout.from_environment(os.environ)
    configuration = load(layout.conf, environment=os.environ, dynamic=parse_dynamic(dynamic))
    settings = options.high_availability_settings(configuration, layout, makes_key=False)
    if settings.etcd is None:
        message = "high-availability.type is none: there is no etcd"
        raise PermanentError(message)
    clock, entropy, io = SystemClock(), SystemEntropy(), BlockingIo()
    blobs = open_blob_store(configuration, layout, io, clock, entropy)
    ha = ha_services.create(settings, objects=blobs, clock=clock, boot_clock=BootClock(), entropy=entropy)
    try:
        await ha.start()
        restored = RestoredStore(ha.kv, ha.keys, ha.job_reader(), entropy, timeout=settings.timeout)
        deadline = Deadline.after(clock, _LEASES_FACTOR * options.seconds(configuration, LEASE_TIMEOUT))
        await restored.wait_for_silence(lambda: deadline.has_passed(clock))
        cancelled = 0 if keep_jobs else await restored.cancel_jobs()
        await restored.begin_again()
        await ha.start()
        mark = await ha.store_mark(mark_file(configuration, layout, io, entropy)).note()
    finally:
        await ha.close()
        io.close()
    jobs = "unfinished jobs go on" if keep_jobs else f"{cancelled} unfinished jobs will be cancelled"
    return f"cluster {mark.cluster} begins at revision {mark.revision}: {jobs}; start its processes"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

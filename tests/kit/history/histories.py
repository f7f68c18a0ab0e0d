"""Histories of clusters in a directory, written as a JobManager writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from runtime.aio.blocking import BlockingIo
from runtime.aio.entropy import SystemEntropy
from runtime.blob.directory import open_directory
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.history.catalogue import Catalogue
from runtime.history.pack import EndedJob, make_pack
from runtime.history.reader import HistoryReader
from runtime.history.writer import CLUSTER_PREFIX, HistoryWriter, day_of
from tests.kit.control_plane.virtual_time import ManualClock
from tests.kit.rest.fakes import archived, summary


def job_id(number: int) -> JobId:
    """The id of that number."""
    return JobId(f"{number:032x}")


def ended(
    number: int = 1,
    status: JobStatus = JobStatus.FINISHED,
    *,
    name: str = "daily",
    end: int = 2000,
    namespace: str = "",
) -> EndedJob:
    """A job of two vertices that has ended."""
    line = replace(summary(job_id(number), status, end), name=name, namespace=namespace)
    return EndedJob(line, archived(job_id(number), status).to_json())


@dataclass
class Histories:
    """`root` is a directory of histories."""

    root: Path
    clock: ManualClock = field(default_factory=ManualClock)
    io: BlockingIo = field(default_factory=lambda: BlockingIo(threads=1))

    def writer(self, cluster: str = "one", bytes_max: int = 1 << 30) -> HistoryWriter:
        """That of a cluster, whose storage lies beside the histories."""
        return HistoryWriter(
            partial(open_directory, str(self.root)),
            open_directory(str(self.storage)),
            cluster,
            self.io,
            self.clock,
            SystemEntropy(),
            bytes_max=bytes_max,
        )

    @property
    def storage(self) -> Path:
        """The storage directory of the clusters."""
        return self.root.with_name(f"{self.root.name}-storage")

    async def write(self, *jobs: EndedJob, cluster: str = "one") -> Path:
        """One more file of a cluster, a millisecond after the one before."""
        self.clock.advance(0.001)
        before = set(self.files())
        await self.writer(cluster).write(jobs)
        (new,) = set(self.files()) - before
        return new

    def put(self, *jobs: EndedJob, cluster: str = "one") -> Path:
        """The same where a loop runs already."""
        self.clock.advance(0.001)
        day = self.root / f"{CLUSTER_PREFIX}{cluster}" / day_of(self.clock.millis)
        day.mkdir(parents=True, exist_ok=True)
        file = day / f"{self.clock.millis:013d}-{SystemEntropy().hex_id()}.jobs"
        file.write_bytes(make_pack(jobs))
        return file

    def files(self) -> list[Path]:
        """All files, oldest first."""
        return sorted(self.root.glob("cluster-*/*/*.jobs"), key=lambda path: path.name)

    def catalogue(self, *others: Path, jobs_max: int = 1000) -> Catalogue:
        """What reads this directory, then the others."""
        return Catalogue(readers(self.root, *others), self.clock, jobs_max=jobs_max)


def readers(*roots: Path) -> Sequence[HistoryReader]:
    """Those of these directories."""
    opened = (open_directory(str(root), is_read_only=True) for root in roots)
    return [HistoryReader(number, directory, inner="history") for number, directory in enumerate(opened)]

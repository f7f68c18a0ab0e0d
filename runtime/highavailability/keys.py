"""The keys of protocol.md 1, under `/flinklike/<cluster-id>/`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError
from runtime.common.ids import Incarnation, JobId, is_hex_id

_CLUSTER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")

_EVENT_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one cluster. Prefixes end in `/`, so that no cluster's or job's prefix is another's."""

    root: str

    @classmethod
    def of_cluster(cls, cluster_id: str) -> Keys:
        """The keys of a cluster. Raises InvalidInputError for an id that could mean another cluster's keys."""
        if not _CLUSTER_ID.match(cluster_id):
            message = (
                f"{cluster_id[:80]!r} is not a cluster id: "
                "expected up to 128 letters, digits, dots, dashes and underscores"
            )
            raise InvalidInputError(message)
        return cls(f"/flinklike/{cluster_id}/")

    @property
    def cluster(self) -> str:
        """The cluster's uuid, made once."""
        return f"{self.root}cluster"

    @property
    def leaders(self) -> str:
        """Prefix of the candidates for JobManager leadership."""
        return f"{self.root}leader/jobmanager/"

    def leader(self, lease: int) -> str:
        """One candidate, named by its lease."""
        return f"{self.leaders}{lease:x}"

    @property
    def job_masters(self) -> str:
        """Prefix of the registered JobMaster processes."""
        return f"{self.root}jobmasters/"

    def job_master(self, incarnation: Incarnation) -> str:
        """One JobMaster process."""
        return f"{self.job_masters}{incarnation}"

    @property
    def task_managers(self) -> str:
        """Prefix of the registered TaskManagers."""
        return f"{self.root}taskmanagers/"

    def task_manager(self, incarnation: Incarnation) -> str:
        """One TaskManager."""
        return f"{self.task_managers}{incarnation}"

    def guard(self, incarnation: Incarnation) -> str:
        """R13: whether a leader has reached this TaskManager's guard; written before its first slot is given away."""
        return f"{self.task_manager(incarnation)}/guard"

    def fence(self, incarnation: Incarnation, job_id: JobId) -> str:
        """R14: the fence of one job on one TaskManager."""
        return f"{self.fences(incarnation)}{job_id}"

    def fences(self, incarnation: Incarnation) -> str:
        """Prefix of the fences on one TaskManager."""
        return f"{self.task_manager(incarnation)}/fences/"

    @property
    def jobs(self) -> str:
        """Prefix of all jobs that are not cleaned."""
        return f"{self.root}jobs/"

    def job(self, job_id: JobId) -> str:
        """Prefix of everything of one job."""
        return f"{self.jobs}{job_id}/"

    def graph(self, job_id: JobId) -> str:
        """The job's graph."""
        return f"{self.job(job_id)}graph"

    def owner(self, job_id: JobId) -> str:
        """The job's owner; its mod_revision is the epoch E."""
        return f"{self.job(job_id)}owner"

    def events(self, job_id: JobId) -> str:
        """Prefix of the job's batches of events."""
        return f"{self.job(job_id)}events/"

    def event(self, job_id: JobId, number: int) -> str:
        """One batch of events; digits are padded, so that key order is their order."""
        return f"{self.events(job_id)}{number:0{_EVENT_DIGITS}d}"

    def checkpoints(self, job_id: JobId) -> str:
        """Prefix of the job's completed checkpoints."""
        return f"{self.job(job_id)}checkpoints/"

    def checkpointed(self, job_id: JobId) -> str:
        """The number of the job's latest completed checkpoint; it is written with each, and stays."""
        return f"{self.job(job_id)}checkpointed"

    def checkpoint(self, job_id: JobId, number: int) -> str:
        """One completed checkpoint; digits are padded, so that key order is their order."""
        return f"{self.checkpoints(job_id)}{number:0{_EVENT_DIGITS}d}"

    @property
    def all_operations(self) -> str:
        """Prefix of the operations of all jobs."""
        return f"{self.root}operations/"

    def operations(self, job_id: JobId) -> str:
        """Prefix of what clients have asked of the job's state. Not below `jobs`: it is asked about after the job."""
        return f"{self.all_operations}{job_id}/"

    def operation(self, job_id: JobId, trigger_id: str) -> str:
        """One operation."""
        return f"{self.operations(job_id)}{trigger_id}"

    @property
    def disposals(self) -> str:
        """Prefix of the savepoints that are to be deleted, or were."""
        return f"{self.root}disposals/"

    def disposal(self, trigger_id: str) -> str:
        """One of them."""
        return f"{self.disposals}{trigger_id}"

    def wanted(self, job_id: JobId) -> str:
        """The wish of a client: a cancel, or a move."""
        return f"{self.job(job_id)}wanted"

    def client(self, job_id: JobId) -> str:
        """When the job's client has promised to be back."""
        return f"{self.job(job_id)}client"

    def result(self, job_id: JobId) -> str:
        """The terminal state (dirty)."""
        return f"{self.job(job_id)}result"

    @property
    def principals(self) -> str:
        """Prefix of the principals."""
        return f"{self.root}principals/"

    def principal(self, name: str) -> str:
        """One principal."""
        return f"{self.principals}{name}"

    @property
    def jars(self) -> str:
        """Prefix of the uploaded programs."""
        return f"{self.root}jars/"

    def jar(self, jar_id: str) -> str:
        """One uploaded program."""
        return f"{self.jars}{jar_id}"

    @property
    def last_jar(self) -> str:
        """Which program was uploaded last: each upload replaces it, so that no two of them count the same programs."""
        return f"{self.root}last-jar"

    @property
    def cluster_events(self) -> str:
        """Prefix of the cluster's events (D-114)."""
        return f"{self.root}cluster-events/"

    def cluster_event(self, number: str) -> str:
        """One event of the cluster; numbers are padded, so that key order is their order."""
        return f"{self.cluster_events}{number}"

    @property
    def all_done(self) -> str:
        """Prefix of the cleaned jobs."""
        return f"{self.root}done/"

    def done(self, job_id: JobId) -> str:
        """One cleaned job."""
        return f"{self.all_done}{job_id}"

    def split_job_key(self, key: str) -> tuple[JobId, str] | None:
        """`jobs/<id>/<rest>` -> (id, rest); None for a key of another form."""
        job_id, _, rest = key.removeprefix(self.jobs).partition("/")
        if not key.startswith(self.jobs) or not rest or not is_hex_id(job_id):
            return None
        return JobId(job_id), rest

"""Jobs on a ScriptCluster that outlive outages, and what has become of their tasks: see `outage_programs`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from airflow_flinklike.client import FlinklikeClient, new_job_id
from airflow_flinklike.exceptions import ClusterUnavailableError
from runtime.common.ids import JobId
from runtime.jobgraph.graph import (
    ExchangeMode,
    FunctionReference,
    JobEdge,
    JobGraph,
    JobVertex,
    Operator,
    OperatorKind,
    vertex_id_of,
)
from tests.kit.cluster.naps import attempts
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached


class GatedJobs:
    """Jobs whose tasks note in a file that they begin and end, and that run until a gate opens."""

    def __init__(self, cluster: ScriptCluster, client: FlinklikeClient, folder: Path) -> None:
        self.cluster = cluster
        self.client = client
        self._folder = folder
        self._ledger = folder / "ledger"
        self._ledger.touch()

    def submit(self, name: str, *, exclusive: bool | None = None, padding: int = 0) -> JobId:
        """One task, that runs. `padding`: so much larger is its graph, in bytes."""
        job_id = new_job_id()
        self.client.submit(self.graph(name, exclusive=exclusive, padding=padding), job_id=job_id)
        reached(lambda: self.count(name, "begins") == 1, f"{name} runs")
        return job_id

    def graph(self, name: str, *, exclusive: bool | None = None, padding: int = 0) -> JobGraph:
        """One task."""
        vertex = _vertex(name, OperatorKind.FUNCTION, exclusive=exclusive)
        return JobGraph(name=name, vertices=(vertex,), params={**self._params, "padding": "x" * padding})

    @property
    def _params(self) -> dict[str, JsonValue]:
        return {"ledger": str(self._ledger), "gates": str(self._folder)}

    def pipeline(self) -> JobGraph:
        """`first` -> `second`."""
        edge = JobEdge(source=vertex_id_of("first"), target=vertex_id_of("second"), mode=ExchangeMode.GATHER)
        vertices = (_vertex("first", OperatorKind.SOURCE), _vertex("second", OperatorKind.SINK))
        return JobGraph(name="pipeline", vertices=vertices, edges=(edge,), params=self._params)

    def many(self, count: int) -> JobGraph:
        """`many-1`, `many-3`, ... have gates; the others end at once, and behind those a next may be deployed ahead."""
        code = FunctionReference(target="tests.kit.cluster.outage_programs:one_of_many")
        operator = Operator(name="many", kind=OperatorKind.FUNCTION, code=code)
        vertex = JobVertex(
            id=vertex_id_of("many"), name="many", operators=(operator,), parallelism=count, max_parallelism=count
        )
        return JobGraph(name="many", vertices=(vertex,), params=self._params)

    def open_gate(self, name: str) -> None:
        """The task of that name may end."""
        (self._folder / name).touch()

    def count(self, name: str, what: str) -> int:
        """How often that task has noted that it `begins` or `ends`."""
        return self._ledger.read_text().split("\n").count(f"{name} {what}")

    def states(self, ids: Sequence[JobId]) -> list[str]:
        """Of these jobs, as the overview shows them."""
        jobs = {job["jid"]: job["state"] for job in self.client.get("/jobs/overview")["jobs"]}
        return [jobs.get(job_id, "") for job_id in ids]

    def attempts(self, ids: Sequence[JobId]) -> list[tuple[str, str]]:
        """Of these jobs, as `naps.attempts` finds them."""
        return attempts(self.client, ids)

    def no_leader(self) -> bool:
        """The JobManager has stopped deciding: its lease may have ended."""
        with self.cluster.connect(retry_for=0.0) as impatient:
            try:
                impatient.get("/jobs/overview")
            except ClusterUnavailableError:
                return True
        return False

    def cannot_submit(self, job_id: JobId) -> bool:
        """Nothing is acknowledged that cannot be made durable."""
        with self.cluster.connect(retry_for=0.0) as impatient:
            try:
                impatient.submit(self.graph("late"), job_id=job_id)
            except ClusterUnavailableError:
                return True
        return False


def _vertex(name: str, kind: OperatorKind, *, exclusive: bool | None = None) -> JobVertex:
    code = FunctionReference(target=f"tests.kit.cluster.outage_programs:{kind.value.lower()}")
    operator = Operator(name=name, kind=kind, code=code)
    return JobVertex(
        id=vertex_id_of(name), name=name, operators=(operator,), parallelism=1, max_parallelism=1, exclusive=exclusive
    )

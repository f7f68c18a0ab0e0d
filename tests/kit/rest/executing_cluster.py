"""The fake cluster, but lone functions are run: unpickled as a slot does it, with a session that is only a word."""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from runtime.jobgraph.graph import OperatorKind, PickledCode
from runtime.jobgraph.parsing import parse_job_graph
from tests.kit.rest.fake_cluster import FakeCluster, fake_cluster


class SlotContext:
    """A TaskContext's part that functions use here."""

    spark = "session"
    parallelism = 1


class ExecutingCluster(FakeCluster):
    """Ends every lone function with what it returns, or with what it raises; other jobs as their name says."""

    def submit(self, body: dict[str, Any]) -> tuple[int, Any]:
        answer = super().submit(body)
        job, graph = self.jobs[body["job_id"]], parse_job_graph(json.dumps(body["job_graph"]).encode())
        (operator, *_) = graph.vertices[0].operators
        if operator.kind is OperatorKind.FUNCTION and job.status == "RUNNING":
            assert isinstance(operator.code, PickledCode)
            try:
                value = pickle.loads(operator.code.payload())(SlotContext())
            except Exception as error:  # noqa: BLE001 - whatever a function raises
                text = "".join(traceback.format_exception(error))
                job.failure = {
                    "class": type(error).__name__,
                    "message": str(error),
                    "stack-trace": text,
                    "kind": "USER",
                }
                self._end(job, "FAILED", None)
            else:
                self._end(job, "FINISHED", value)
        return answer


@contextmanager
def executing_cluster() -> Iterator[ExecutingCluster]:
    """A running one."""
    with fake_cluster(ExecutingCluster) as cluster:
        assert isinstance(cluster, ExecutingCluster)
        yield cluster

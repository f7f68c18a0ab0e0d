"""What can be run on a cluster: the common face of pipelines, script jobs and function jobs.

`submit` and `run_local` are the only methods that open a connection; they load the HTTP client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from airflow_flinklike.api.artifacts import ArtifactCollector
from airflow_flinklike.api.explain import Explanation, explain_graph
from airflow_flinklike.api.job_program import JobOptions, JobProgram, assemble, check_names, kept
from airflow_flinklike.exceptions import PipelineError
from runtime.common.errors import InvalidInputError
from runtime.jobgraph.graph import JobEdge, JobGraph, JobVertex, validation_problems

if TYPE_CHECKING:
    from airflow_flinklike.api.handle import JobHandle


class Program(ABC):
    """A job that can be built, explained, submitted, and run in a cluster of this process's own."""

    def __init__(self, name: str, spark_conf: Mapping[str, Any] | None, options: JobOptions) -> None:
        check_names(f"job {name!r}", options, JobOptions)
        self.name = name
        self.spark_conf = spark_conf or {}
        self._options = kept(options)

    @property
    def params(self) -> Mapping[str, Any]:
        """The job's parameters, as `ctx.params` shows them."""
        return dict(self._options.get("params") or {})

    def build(self, params: Mapping[str, Any] | None = None) -> JobProgram:
        """The JobGraph and what must be uploaded for it. `params` are added to the program's own.

        Raises PipelineError with all problems.
        """
        collector = ArtifactCollector()
        options: JobOptions = {**self._options, "params": {**self.params, **(params or {})}}
        try:
            vertices, edges = self._graph(collector)
            return assemble(self.name, vertices, edges, collector, spark_conf=self.spark_conf, options=options)
        except ValidationError as error:
            found = validation_problems(error)
            raise PipelineError(f"job {self.name!r} is not valid: {'; '.join(found)}", found) from error
        except PipelineError:
            raise
        except InvalidInputError as error:
            raise PipelineError(str(error), error.problems) from error

    @abstractmethod
    def _graph(self, collector: ArtifactCollector) -> tuple[list[JobVertex], list[JobEdge]]:
        """The vertices and edges. The collector gets the code and the files that they name."""

    def job_graph(self, params: Mapping[str, Any] | None = None) -> JobGraph:
        """The JobGraph. Artifacts above 64 KiB have no key in it until `submit` has uploaded them."""
        return self.build(params).graph

    def explain(self, params: Mapping[str, Any] | None = None) -> Explanation:
        """Chains, exchanges, regions and slots: what would happen, without a cluster."""
        return explain_graph(self.job_graph(params))

    def submit(
        self,
        address: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        job_id: str | None = None,
        token: str | None = None,
        token_file: str | None = None,
        queue: str = "",
        priority: int = 0,
        detached: bool = False,
    ) -> JobHandle:
        """Submit to a cluster. Attached: return when the job is FINISHED, raise when it is not.

        `address` is `host:port` or a URL, several separated by commas; default $FLINKLIKE_ADDRESS, then
        127.0.0.1:8081. The token is found as `airflow_flinklike.client.token` says. `queue`: where the job waits for
        slots, by `priority`, the highest first; default the queue of the token's principal.
        """
        from airflow_flinklike.api.handle import submit_program  # noqa: PLC0415 - building loads no HTTP client
        from airflow_flinklike.client.model import QueuePlace  # noqa: PLC0415

        program, place = self.build(params), QueuePlace(queue, priority)
        handle = submit_program(program, address, job_id=job_id, token=token, token_file=token_file, place=place)
        if not detached:
            handle.result()
        return handle

    def run_local(
        self, params: Mapping[str, Any] | None = None, *, slots: int = 2, conf: Mapping[str, str] | None = None
    ) -> Any:
        """Run in a local cluster that lives as long as the call, and return the job's value.

        Its start takes as long as the start of Spark's JVM; `conf={"taskmanager.spark.enabled": "false"}` starts no
        Spark. Raises JobFailedError; LocalClusterError when the cluster does not start.
        """
        from airflow_flinklike.api.local import run_local  # noqa: PLC0415 - building loads no HTTP client

        return run_local(self.build(params), slots=slots, conf=conf or {})

"""POST /jobs: from untrusted bytes to a SubmitJobRequest, with every problem listed.

The bytes of a good one are read once. What a reader may cost is bounded before it begins: by the body's size, and by
the number of its values, because a few megabytes of brackets cost more than any real graph (R41).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from runtime.aio.blocking import BlockingIo
from runtime.common.errors import InvalidInputError
from runtime.common.ids import parse_job_id
from runtime.common.shares import PRIORITY_MAX, PRIORITY_MIN
from runtime.common.spark_conf import static_conf
from runtime.common.spark_connect_limits import refused_by_connect
from runtime.common.spark_environments import SparkOffer, refused_static_conf
from runtime.common.version import JOB_GRAPH_SCHEMA_VERSION
from runtime.config.job_configuration import job_configuration_problems, runtime_mode_problem
from runtime.gateways.dispatcher import SubmitJobRequest
from runtime.jobgraph.graph import JobGraph, ScriptCode
from runtime.jobgraph.limits import GRAPH_BYTES_MAX
from runtime.jobgraph.parsing import check_job_graph
from runtime.rest.bodies.request_bodies import parse_body
from runtime.rest.bodies.text_patterns import JobIdText
from runtime.rest.routes.speculation import speculation_problem

INLINE_BYTES = 64 * 1024
"""Bodies up to this size are read at once on the loop: less than a hop to a thread costs. No-op jobs are 2 kB."""

VALUES_MAX = 500_000
CLIENT_LENGTH_MAX = 256


def _is_job_id(text: str) -> str:
    try:
        return parse_job_id(text)
    except InvalidInputError as error:
        kind = "job_id"
        raise PydanticCustomError(kind, "{problem}", {"problem": str(error)}) from error


class SubmitOptions(BaseModel):
    """What a client says beside the job. The text ends up in records and logs: no control characters."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    client: Annotated[str, Field(max_length=CLIENT_LENGTH_MAX, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    namespace: Annotated[
        str, Field(max_length=63, description="namespace of the job; default: that of the principal")
    ] = ""
    queue: Annotated[
        str, Field(max_length=127, description="queue of the job; default: that of its team, of its submitter, default")
    ] = ""
    team: Annotated[
        str, Field(max_length=127, description="its queue where none is named and the principal may use that one")
    ] = ""
    priority: Annotated[
        int, Field(ge=PRIORITY_MIN, le=PRIORITY_MAX, description="in its queue; the highest is served first")
    ] = 0


class Submission(BaseModel):
    """The body of POST /jobs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    job_id: Annotated[JobIdText, AfterValidator(_is_job_id)]
    job_graph: JobGraph
    options: SubmitOptions = SubmitOptions()


_LARGE = BlockingIo("large-submits", threads=1)
"""One body at a time: its parser holds the interpreter, and the loop has to run between two bodies."""


@dataclass(frozen=True, slots=True)
class VerifiedSubmit:
    """A request with the canonical JSON of a valid `graph` and its digest: parsed once, hashed once."""

    request: SubmitJobRequest
    graph: JobGraph
    team: str = ""


async def read_submission(body: bytes, offers: Sequence[SparkOffer]) -> VerifiedSubmit:
    """Validate a submit; a large one in a thread. Raises InvalidInputError with the problems (400)."""
    if len(body) <= INLINE_BYTES:
        return parse_submission(body, offers)
    return await _LARGE.run(parse_submission, body, offers)


def parse_submission(body: bytes, offers: Sequence[SparkOffer]) -> VerifiedSubmit:
    """Validate a submit. Raises InvalidInputError with the problems (400)."""
    try:
        submission = parse_body(Submission, body, VALUES_MAX)
    except InvalidInputError as error:
        if version := _other_version(body):
            raise InvalidInputError(version) from error
        raise
    options = submission.options
    verified = verify_graph(
        submission.job_graph, submission.job_id, offers, client=options.client, namespace=options.namespace
    )
    request = replace(verified.request, queue=options.queue, priority=options.priority)
    return VerifiedSubmit(request, verified.graph, options.team)


def verify_graph(
    graph: JobGraph, job_id: str, offers: Sequence[SparkOffer], *, client: str, namespace: str
) -> VerifiedSubmit:
    """Check a graph whose form is known. Raises InvalidInputError with the problems (400)."""
    of_configuration = [*job_configuration_problems(graph.configuration)]
    if not of_configuration and (misfit := runtime_mode_problem(graph.configuration, graph.job_type)):
        of_configuration.append(misfit)
    elif not of_configuration and (vain := speculation_problem(graph)):
        of_configuration.append(vain)
    problems = (*_graph_problems(graph), *_refused_conf(graph, offers), *of_configuration)
    canonical = b"" if problems else graph.canonical_json()
    if len(canonical) > GRAPH_BYTES_MAX:
        problems = (f"job_graph: it has {len(canonical)} bytes, the limit is {GRAPH_BYTES_MAX}",)
    if problems:
        raise InvalidInputError("; ".join(problems), problems)
    request = SubmitJobRequest(
        job_id=parse_job_id(job_id),
        graph=canonical,
        digest=hashlib.sha256(canonical).hexdigest(),
        client=client,
        namespace=namespace,
    )
    return VerifiedSubmit(request, graph)


def _refused_conf(graph: JobGraph, offers: Sequence[SparkOffer]) -> list[str]:
    is_jar = any(vertex.is_jar for vertex in graph.vertices)
    jars = [] if is_jar else [(jar.sha256, jar.name) for jar in graph.jars]
    if problems := refused_by_connect(
        static_conf(graph.spark_conf), offers, jars=jars, is_application=is_jar, has_queries=_has_queries(graph)
    ):
        return problems
    return refused_static_conf(graph.spark_conf, offers, jars=jars, is_application=is_jar)


def _has_queries(graph: JobGraph) -> bool:
    operators = [operator for vertex in graph.vertices for operator in vertex.operators]
    return any(
        one.stream_sink is not None or (isinstance(one.code, ScriptCode) and one.code.starts_queries)
        for one in operators
    )


def _graph_problems(graph: JobGraph) -> tuple[str, ...]:
    try:
        check_job_graph(graph)
    except InvalidInputError as error:
        return tuple(f"job_graph: {problem}" for problem in error.problems)
    return ()


class _VersionOnly(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)
    schema_version: int = JOB_GRAPH_SCHEMA_VERSION


class _VersionedSubmission(BaseModel):
    """Reads nothing but the graph's schema version: a newer graph is refused for that, not for its new fields."""

    model_config = ConfigDict(extra="ignore", strict=True)
    job_graph: _VersionOnly


def _other_version(body: bytes) -> str | None:
    try:
        version = _VersionedSubmission.model_validate_json(body).job_graph.schema_version
    except ValidationError:
        return None
    if version == JOB_GRAPH_SCHEMA_VERSION:
        return None
    return f"job_graph: it has schema version {version}, this cluster speaks {JOB_GRAPH_SCHEMA_VERSION}"

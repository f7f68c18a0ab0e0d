"""Parsing and checking of a JobGraph from outside: the result is a valid graph, or an error that lists all problems."""

from __future__ import annotations

from pydantic import ConfigDict, ValidationError

from runtime.common.errors import InvalidInputError
from runtime.common.version import JOB_GRAPH_SCHEMA_VERSION
from runtime.jobgraph.code import PYTHON_VERSION, JobGraphModel
from runtime.jobgraph.graph import JobGraph, validation_problems
from runtime.jobgraph.limits import GRAPH_BYTES_MAX
from runtime.jobgraph.validate import graph_problems


def parse_job_graph(data: bytes, *, python: str | None = PYTHON_VERSION) -> JobGraph:
    """Read and check a graph from outside. Raises InvalidInputError that lists all problems at once.

    Pickled code of another Python minor version than `python` is a problem; None skips that comparison.
    """
    if len(data) > GRAPH_BYTES_MAX:
        message = f"job graph has {len(data)} bytes, the limit is {GRAPH_BYTES_MAX}"
        raise InvalidInputError(message)
    try:
        graph = JobGraph.model_validate_json(data)
    except ValidationError as error:
        _check_schema_version(_schema_version_of(data))
        problems = validation_problems(error)
        message = f"job graph is not well-formed: {'; '.join(problems)}"
        raise InvalidInputError(message, problems) from error
    _check_schema_version(graph.schema_version)
    check_job_graph(graph, python=python)
    return graph


def check_job_graph(graph: JobGraph, *, python: str | None = PYTHON_VERSION) -> None:
    """Raises InvalidInputError that lists every problem of the graph. `python` is that of `parse_job_graph`."""
    problems = tuple(graph_problems(graph, python=python))
    if problems:
        message = f"job graph {graph.name[:80]!r} is not valid: {'; '.join(problems)}"
        raise InvalidInputError(message, problems)


class _Versioned(JobGraphModel):
    """Reads nothing but the schema version, so that a newer graph is refused for that and not for its new fields."""

    model_config = ConfigDict(extra="ignore", strict=True)
    schema_version: int


def _schema_version_of(data: bytes) -> int | None:
    try:
        return _Versioned.model_validate_json(data).schema_version
    except ValidationError:
        return None


def _check_schema_version(version: int | None) -> None:
    if version is not None and version != JOB_GRAPH_SCHEMA_VERSION:
        message = f"job graph has schema version {version}, this cluster speaks {JOB_GRAPH_SCHEMA_VERSION}"
        raise InvalidInputError(message)

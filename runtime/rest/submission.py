"""POST /jobs: from untrusted bytes to a SubmitJobRequest, with every problem listed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId, parse_job_id
from runtime.common.spark_conf import refused_static_conf
from runtime.gateways.dispatcher import SubmitJobRequest
from runtime.jobgraph.graph import JobGraph

_FIELDS = {"job_id", "job_graph", "options"}
_OPTIONS = {"client"}
_CLIENT_LENGTH_MAX = 256


def parse_submission(body: bytes, offered_spark_conf: Sequence[bytes]) -> SubmitJobRequest:
    """Validate a submit. Raises InvalidInputError with all problems (400)."""
    document = _document(body)
    problems = [
        f"unknown field {name!r}: expected job_id, job_graph, options" for name in sorted(set(document) - _FIELDS)
    ]
    job_id = _job_id(document, problems)
    client = _client(document, problems)
    graph = _graph(document, problems)
    if graph is not None:
        problems += refused_static_conf(graph.spark_conf, offered_spark_conf)
    if problems or graph is None:
        raise InvalidInputError("; ".join(problems), tuple(problems))
    return SubmitJobRequest(job_id=job_id, graph=graph.canonical_json(), digest=graph.digest(), client=client)


def _document(body: bytes) -> dict[str, object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        message = f"the body is not JSON: {error}"
        raise InvalidInputError(message) from error
    if not isinstance(document, dict):
        message = "the body must be a JSON object with job_id and job_graph"
        raise InvalidInputError(message)
    return document


def _job_id(document: dict[str, object], problems: list[str]) -> JobId:
    text = document.get("job_id")
    try:
        return parse_job_id(text if isinstance(text, str) else "")
    except InvalidInputError as error:
        problems.append(f"job_id: {error}")
        return JobId("")


def _client(document: dict[str, object], problems: list[str]) -> str:
    options = document.get("options", {})
    if not isinstance(options, dict):
        problems.append("options: expected an object")
        return ""
    problems += [f"options: unknown option {name!r}" for name in sorted(set(options) - _OPTIONS)]
    client = options.get("client", "")
    if not isinstance(client, str) or len(client) > _CLIENT_LENGTH_MAX:
        problems.append(f"options.client: expected a text of at most {_CLIENT_LENGTH_MAX} characters")
        return ""
    return client


def _graph(document: dict[str, object], problems: list[str]) -> JobGraph | None:
    if "job_graph" not in document:
        problems.append("job_graph: missing")
        return None
    try:
        return JobGraph.parse(json.dumps(document["job_graph"]).encode())
    except InvalidInputError as error:
        problems += [f"job_graph: {problem}" for problem in error.problems]
        return None

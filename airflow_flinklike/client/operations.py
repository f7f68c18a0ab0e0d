"""Every call of the client, without I/O: its request, the meaning of its answer, and how a lost answer is settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from airflow_flinklike.client.model import (
    NO_PLACE,
    JobExecutionResult,
    JobNews,
    JobState,
    LogPiece,
    QueuePlace,
    SubmittedJob,
)
from airflow_flinklike.client.protocol import (
    AnswerLostError,
    Content,
    Operation,
    Pause,
    Request,
    ask,
    json_request,
    told,
    told_job_id,
)
from airflow_flinklike.exceptions import ClusterUnavailableError, JobNotFoundError
from runtime.common.ids import JobId
from runtime.common.printable import printable
from runtime.common.states import JobStatus
from runtime.jobgraph.graph import Artifact, JobGraph

LONG_POLL_SECONDS = 20.0
_ANSWER_SECONDS = 30.0
_LOST_ANSWERS_MAX = 6
_REASON_MAX = 10_000
_WARNINGS_MAX, _WARNING_MAX = 20, 2_000
_LOST_ANSWER_PAUSE = 0.2
_STATUS_OF_APPLICATION = {
    "SUCCEEDED": JobStatus.FINISHED,
    "FAILED": JobStatus.FAILED,
    "CANCELED": JobStatus.CANCELED,
}

BlobContents = Mapping[str, Content]
"""sha256 -> content of artifacts that are not inline."""


def submit(
    job_id: JobId,
    graph: JobGraph,
    contents: BlobContents,
    *,
    client: str,
    namespace: str = "",
    place: QueuePlace = NO_PLACE,
    traceparent: str = "",
) -> Operation[SubmittedJob]:
    """Upload missing content, then submit. After a lost answer, ask for the job (semantics.md, Identity)."""
    complete = yield from upload_artifacts(graph, contents)
    document = {
        "job_id": job_id,
        "job_graph": complete.document(),
        # Left out by default, since a cluster of an earlier release refuses unknown options.
        "options": {"client": client} | {key: one for key, one in _options(namespace, place).items() if one},
    }
    request = json_request("POST", "/jobs", document, timeout=60.0, tells_loss=True, traceparent=traceparent)
    reason = ""
    for tried in range(_LOST_ANSWERS_MAX):
        try:
            response = yield from ask(request)
        except AnswerLostError as lost:
            if (yield from _is_known(job_id)):
                return SubmittedJob(job_id, is_new=True)
            reason = str(lost)
            yield Pause(_LOST_ANSWER_PAUSE * (1 << tried))
        else:
            answer = told(request, response)
            is_new = answer.get("outcome") != "ALREADY_SUBMITTED"
            return SubmittedJob(job_id, is_new, _warnings(answer))
    message = f"submitting job {job_id}: the connection broke {_LOST_ANSWERS_MAX} times before an answer came: {reason}"
    raise ClusterUnavailableError(message)


def _warnings(answer: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(printable(one[:_WARNING_MAX]) for one in answer.get("warnings", ())[:_WARNINGS_MAX])


def _options(namespace: str, place: QueuePlace) -> dict[str, str | int]:
    return {"namespace": namespace, "queue": place.queue, "team": place.team, "priority": place.priority}


def _is_known(job_id: JobId) -> Operation[bool]:
    try:
        found = yield from status(job_id, wait=0, since=0)
    except JobNotFoundError:
        return False
    return found.is_own  # else the repeated submit says that the job is not ours


def upload_artifacts(graph: JobGraph, contents: BlobContents) -> Operation[JobGraph]:
    """The graph with a blob key for every artifact that is not inline. Each content is sent at most once (R19)."""
    pending = {one.sha256: one for one in graph.artifacts() if one.is_pending}
    if not pending:
        return graph
    keys = yield from _upload_missing(pending.values(), contents)
    return graph.map_artifacts(lambda one: one.model_copy(update={"key": keys[one.sha256]}) if one.is_pending else one)


def _upload_missing(artifacts: Iterable[Artifact], contents: BlobContents) -> Operation[dict[str, str]]:
    digests = [{"sha256": one.sha256, "size_bytes": one.size_bytes} for one in artifacts]
    request = json_request("POST", "/blobs/missing", {"digests": digests})
    answer = told(request, (yield from ask(request)))
    keys: dict[str, str] = dict(answer["keys"])
    for sha256 in answer["missing"]:
        kind = "application/octet-stream"
        request = Request("PUT", f"/blobs/{sha256}", body=contents[sha256], content_type=kind, timeout=600.0)
        keys[sha256] = told(request, (yield from ask(request)))["key"]
    return keys


def status(job_id: JobId, *, wait: float, since: int) -> Operation[JobState]:
    """The state of a job; with `wait` in seconds a long poll for a change after `since`."""
    params = {"wait": f"{wait:g}", "since": str(since)} if wait > 0 else {}
    request = Request("GET", f"/jobs/{job_id}/status", params, timeout=_ANSWER_SECONDS + wait)
    body = told(request, (yield from ask(request)))
    state = JobStatus(body["status"])
    modified = int(body.get("last-modification", 0))
    return JobState(job_id, state, modified, _reason(body), is_own=bool(body.get("is-own", True)))


def wait_for_news(known: Mapping[JobId, int], *, wait: float, name: str) -> Operation[JobNews]:
    """Long poll for changes of many jobs after the known last modification of each. Ends an earlier poll of `name`."""
    document = {"known": dict(known), "wait": wait, "name": name}
    request = json_request("POST", "/jobs/wait", document, timeout=_ANSWER_SECONDS + wait)
    body = told(request, (yield from ask(request)))
    return JobNews(tuple(map(_listed_state, body["jobs"])), frozenset(map(told_job_id, body["unknown"])))


def _listed_state(body: Mapping[str, Any]) -> JobState:
    """A job as /jobs/overview lists it."""
    return JobState(told_job_id(body["jid"]), JobStatus(body["state"]), int(body["last-modification"]), _reason(body))


def _reason(body: Mapping[str, Any]) -> str:
    return str(body.get("pending-reason", ""))[:_REASON_MAX]


def result_within(job_id: JobId, *, wait: float) -> Operation[JobExecutionResult | None]:
    """The result, waiting at most `wait` seconds for the end; None while the job goes on."""
    request = Request("GET", f"/jobs/{job_id}/execution-result", {"wait": f"{wait:g}"}, timeout=_ANSWER_SECONDS + wait)
    body = told(request, (yield from ask(request)))
    if body["status"]["id"] != "COMPLETED":
        return None
    return parse_result(job_id, body["job-execution-result"])


def parse_result(job_id: JobId, body: Mapping[str, Any]) -> JobExecutionResult:
    """Flink's job-execution-result with our field `result`."""
    return JobExecutionResult(
        job_id=job_id,
        status=_STATUS_OF_APPLICATION[body["application-status"]],
        value=body.get("result"),
        failure=dict(body.get("failure-cause") or {}),
        net_runtime_millis=int(body.get("net-runtime", 0)),
        accumulators=dict(body.get("accumulators") or {}),
    )


def wait_for_result(
    job_id: JobId, *, poll: float = LONG_POLL_SECONDS, keep_going: Callable[[], bool] = lambda: True
) -> Operation[JobExecutionResult | None]:
    """Long poll until the job has ended; None when `keep_going` returns False."""
    while keep_going():
        found = yield from result_within(job_id, wait=poll)
        if found is not None:
            return found
    return None


def cancel(job_id: JobId, *, timeout: float = _ANSWER_SECONDS) -> Operation[None]:
    """Ask the cluster to cancel the job. Idempotent. Raises JobConflictError when the job has ended otherwise."""
    yield from ask(Request("PATCH", f"/jobs/{job_id}", {"mode": "cancel"}, timeout=timeout))


def heartbeat(job_id: JobId, expires_millis: int) -> Operation[None]:
    """Make the promise of the next heartbeat durable. Idempotent. Raises JobConflictError in a cancellation."""
    document = {"expiredTimestamp": expires_millis}
    yield from ask(json_request("PATCH", f"/jobs/{job_id}/clientHeartbeat", document))


def get_json(path: str, params: Mapping[str, str] | None = None) -> Operation[Any]:
    """Any other GET that answers JSON."""
    request = Request("GET", path, params or {})
    return told(request, (yield from ask(request)))


def post_json(path: str, document: Any) -> Operation[Any]:
    """Any other POST of JSON that answers JSON. It must be idempotent, since it is repeated without an answer."""
    request = json_request("POST", path, document)
    return told(request, (yield from ask(request)))


def delete(path: str) -> Operation[Any]:
    """A DELETE that answers JSON. Idempotent."""
    request = Request("DELETE", path)
    return told(request, (yield from ask(request)))


def log(
    job_id: JobId, vertex_id: str, subtask: int, attempt: int, *, stream: str, offset: int, limit: int
) -> Operation[LogPiece]:
    """A piece of an attempt's log from `offset`; a negative offset counts from the end."""
    path = f"/jobs/{job_id}/vertices/{vertex_id}/subtasks/{subtask}/attempts/{attempt}/log"
    params = {"stream": stream, "offset": str(offset), "limit": str(limit)}
    response = yield from ask(Request("GET", path, params))
    headers = response.headers
    return LogPiece(
        data=response.body,
        next_offset=int(headers["x-next-offset"]),
        size_bytes=int(headers["x-size"]),
        is_truncated=headers.get("x-truncated") == "true",
    )

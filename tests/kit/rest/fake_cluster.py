"""A small cluster's REST endpoint without a cluster, for tests of clients: real sockets, jobs that end as told.

A job's fate is told by its name: `finish...`, `fail...`, `hang...` (until cancelled or `finish()` is called).
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

TOKEN = "fake-token"
VERTEX = "f" * 32
_TERMINAL = {"FINISHED", "FAILED", "CANCELED"}


@dataclass
class FakeJob:
    """One submitted job."""

    graph: dict[str, Any]
    client: str
    status: str = "RUNNING"
    modified: int = 1
    result: Any = None
    failure: dict[str, Any] = field(default_factory=dict)
    started: int = 1_700_000_000_000
    passed: list[str] = field(default_factory=list)
    output: bytes = b""
    task_state: str = "RUNNING"
    streams: list[dict[str, Any]] = field(default_factory=list)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)


class FakeCluster:
    """Jobs, and what was asked. `results` and `outputs` give values and standard output of jobs by name.

    `written` are the counters of every job's only vertex.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.jobs: dict[str, FakeJob] = {}
        self.results: dict[str, Any] = {}
        self.outputs: dict[str, bytes] = {}
        self.written: dict[str, int] = {}
        self.requests: list[tuple[str, str]] = []
        self.cancels: list[str] = []
        self.heartbeats: list[tuple[str, int]] = []
        self.polls: dict[str, int] = {}
        self.peers: set[tuple[str, int]] = set()
        self.lost_answers = 0
        self.task_managers: list[dict[str, Any]] = [{"id": "tm-1", "freeSlots": 3, "spark": True, "state": "ready"}]
        self.now = 0
        self.url = ""
        self.warnings: list[str] = []
        """What each answer to a submit warns of."""
        self.savepoint_outcomes: list[str] = []
        """The outcomes of the next savepoints and stops: "" completes one, "-" leaves it under way, a text fails it."""

    def submit(self, body: dict[str, Any]) -> tuple[int, Any]:
        job_id, graph = body["job_id"], body["job_graph"]
        if job_id in self.jobs:
            if self.jobs[job_id].graph == graph:
                return 202, {"jobUrl": f"/jobs/{job_id}", "outcome": "ALREADY_SUBMITTED", "status": "RUNNING"}
            return 409, {"errors": [f"job {job_id} exists with another digest"]}
        job = self.jobs[job_id] = FakeJob(graph, body["options"]["client"])
        job.output = self.outputs.get(graph["name"], b"")
        if graph["name"].startswith("finish"):
            self._end(job, "FINISHED", self.results.get(graph["name"]))
        elif graph["name"].startswith("fail"):
            job.failure = {
                "class": "ValueError",
                "message": "no rows",
                "stack-trace": "Traceback: no rows",
                "kind": "USER",
            }
            self._end(job, "FAILED", None)
        answer = {"jobUrl": f"/jobs/{job_id}", "outcome": "ACCEPTED", "status": job.status}
        return 202, answer | ({"warnings": self.warnings} if self.warnings else {})

    def finish(self, job_id: str, value: Any = None) -> None:
        """End a hanging job."""
        with self.changed:
            self._end(self.jobs[job_id], "FINISHED", value)

    def cancel(self, job_id: str) -> tuple[int, Any]:
        self.cancels.append(job_id)
        job = self.jobs.get(job_id)
        if job is None:
            return 404, {"errors": [f"Job {job_id} not found"]}
        if job.status in _TERMINAL - {"CANCELED"}:
            return 409, {"errors": ["already ended"]}
        self._end(job, "CANCELED", None)
        return 202, {}

    def trigger(self, job_id: str, kind: str, body: dict[str, Any]) -> tuple[int, Any]:
        """A savepoint or a stop. The same id asks once."""
        job = self.jobs.get(job_id)
        if job is None:
            return 404, {"errors": [f"Job {job_id} not found"]}
        if body["triggerId"] not in job.operations:
            if job.status in _TERMINAL:
                return 409, {"errors": ["already ended"]}
            if any(one["kind"] == "stop" and "outcome" not in one for one in job.operations.values()):
                return 409, {"errors": [f"job {job_id} is being stopped with a savepoint"]}
            job.operations[body["triggerId"]] = {"kind": kind, **body}
            outcome = self.savepoint_outcomes.pop(0) if self.savepoint_outcomes else ""
            if outcome != "-":
                self.complete(job_id, body["triggerId"], outcome)
        return 202, {"request-id": body["triggerId"]}

    def complete(self, job_id: str, trigger_id: str, failure: str = "") -> None:
        """End an operation that is under way."""
        job = self.jobs[job_id]
        asked = job.operations[trigger_id]
        if failure:
            asked["outcome"] = {"failure-cause": {"class": "E", "stack-trace": f"E: {failure}"}}
            return
        target = asked.get("target-directory") or asked.get("targetDirectory") or "/savepoints"
        asked["outcome"] = {"location": f"{target}/savepoint-{job_id[:6]}-{len(job.operations)}"}
        if asked["kind"] == "stop":
            self.finish(job_id)

    def operation(self, job_id: str, trigger_id: str) -> tuple[int, Any]:
        asked = self.jobs[job_id].operations.get(trigger_id) if job_id in self.jobs else None
        if asked is None:
            return 404, {"errors": [f"no operation {trigger_id}"]}
        outcome = asked.get("outcome")
        return 200, {"status": {"id": "COMPLETED" if outcome else "IN_PROGRESS"}, "operation": outcome}

    def heartbeat(self, job_id: str, expires_millis: int) -> tuple[int, Any]:
        self.heartbeats.append((job_id, expires_millis))
        job = self.jobs.get(job_id)
        if job is None:
            return 404, {"errors": [f"Job {job_id} not found"]}
        return (409, {"errors": ["it ends"]}) if job.status in _TERMINAL else (202, {})

    def _end(self, job: FakeJob, status: str, value: Any) -> None:
        job.status, job.result, job.modified = status, value, job.modified + 1
        self.changed.notify_all()

    def status(self, job_id: str, wait: float, since: int) -> tuple[int, Any]:
        job = self.jobs.get(job_id)
        if job is None:
            return 404, {"errors": [f"Job {job_id} not found"]}
        self.changed.wait_for(lambda: job.modified > since or job.status in _TERMINAL, timeout=wait)
        return 200, {"status": job.status, "last-modification": job.modified, "pending-reason": ""}

    def overview(self) -> tuple[int, Any]:
        """Newest first, as the cluster sorts them."""
        jobs = [
            {"jid": job_id, "name": job.graph["name"], "state": job.status, "start-time": job.started}
            | {"duration": 5, "last-modification": job.modified, "tasks": {"finished": 0, "total": 1}}
            for job_id, job in self.jobs.items()
        ]
        return 200, {"jobs": sorted(jobs, key=lambda job: -job["start-time"])}

    def details(self, job_id: str) -> tuple[int, Any]:
        job = self.jobs[job_id]
        timestamps = dict.fromkeys((*job.passed, job.status), 1)
        plan = {"nodes": [{"id": VERTEX}]}
        vertices = self.vertices(job)
        head = {"jid": job_id, "name": job.graph["name"], "duration": 5, "client": job.client}
        head["job-type"] = "STREAMING" if _has_queries(job) else "BATCH"
        return 200, {**head, "state": job.status, "timestamps": timestamps, "vertices": vertices, "plan": plan}

    def wait_for_news(self, known: dict[str, int], wait: float, name: str) -> tuple[int, Any]:
        """The real one's answer, with what clients of it read."""
        turn = self.polls[name] = self.polls.get(name, 0) + 1
        self.changed.notify_all()

        def news() -> list[str]:
            jobs = [(job_id, self.jobs.get(job_id), modified) for job_id, modified in known.items()]
            return [
                job_id
                for job_id, job, modified in jobs
                if job is None or job.status in _TERMINAL or job.modified != modified
            ]

        self.changed.wait_for(lambda: news() or self.polls[name] != turn, timeout=wait)
        found = [(job_id, self.jobs[job_id]) for job_id in news() if job_id in self.jobs]
        bodies = [{"jid": job_id, "state": job.status, "last-modification": job.modified} for job_id, job in found]
        return 200, {"jobs": bodies, "unknown": [job_id for job_id in news() if job_id not in self.jobs]}

    def execution_result(self, job_id: str, wait: float) -> tuple[int, Any]:
        job = self.jobs.get(job_id)
        if job is None:
            return 404, {"errors": [f"Job {job_id} not found"]}
        self.changed.wait_for(lambda: job.status in _TERMINAL, timeout=wait)
        if job.status not in _TERMINAL:
            return 200, {"status": {"id": "IN_PROGRESS"}}
        names = {"FINISHED": "SUCCEEDED", "FAILED": "FAILED", "CANCELED": "CANCELED"}
        body = {"id": job_id, "application-status": names[job.status], "net-runtime": 5, "result": job.result}
        if job.failure:
            body["failure-cause"] = job.failure
        return 200, {"status": {"id": "COMPLETED"}, "job-execution-result": body}

    def write(self, job_id: str, output: bytes) -> None:
        """The job's only attempt prints."""
        with self.changed:
            self.jobs[job_id].output += output

    def start(self, job_id: str) -> None:
        """The only task of the job runs: until then it is in its `task_state`."""
        with self.changed:
            job = self.jobs[job_id]
            job.task_state, job.modified = "RUNNING", job.modified + 1
            self.changed.notify_all()

    def tell_query(self, job_id: str, uid: str = "orders", *, now: int = 100_000, **fields: Any) -> None:
        """The only subtask of the query of that uid tells how far it is; without fields it has none yet."""
        told = [_told_query(fields)] if fields else []
        self._tell_streams(job_id, uid, f"to {uid}", told, now)

    def tell_script(self, job_id: str, *queries: dict[str, Any], now: int = 100_000) -> None:
        """The only subtask of a streaming script tells how far its queries are, each of which has its name."""
        self._tell_streams(job_id, "", "script", [_told_query(one) for one in queries], now)

    def _tell_streams(self, job_id: str, uid: str, name: str, queries: list[dict[str, Any]], now: int) -> None:
        with self.changed:
            job = self.jobs[job_id]
            others = [one for one in job.streams if one["uid"] != uid]
            job.streams = [*others, {"uid": uid, "name": name, "parallelism": 1, "subtasks": [_subtask(queries)]}]
            self.now = now

    def vertices(self, job: FakeJob) -> list[dict[str, Any]]:
        """One, of one subtask."""
        progress = {"text": "", "fraction": 0.0, "spark-tasks-completed": 0, "spark-tasks-total": 0}
        state = job.status if job.status in _TERMINAL else job.task_state
        return [
            {
                "id": VERTEX,
                "name": "read",
                "parallelism": 1,
                "status": state,
                "duration": 5,
                "tasks": {"FINISHED": 0} | {state: 1},
                "progress": progress,
                "metrics": self.written,
            }
        ]

    def logs(self, job_id: str, body: dict[str, Any]) -> tuple[int, Any]:
        """What the only attempt has printed since the position."""
        job = self.jobs[job_id]
        position, has_ended = body["position"], job.status in _TERMINAL
        offset = position["live"][0][3] if "live" in position else 0
        piece = {
            "data": base64.b64encode(job.output[offset:]).decode(),
            "next-offset": len(job.output),
            "size": len(job.output),
            "truncated": False,
            "dropped": 0,
        }
        empty = {"data": "", "next-offset": 0, "size": 0, "truncated": False, "dropped": 0}
        logs = {stream: piece if stream == "stdout" else empty for stream in body["streams"]}
        attempt = {"vertex": VERTEX, "subtask": 0, "attempt": 0, "ended": has_ended, "missing": "", "logs": logs}
        is_read = "drained" in position or not body["streams"]
        return 200, {
            "state": job.status,
            "last-modification": job.modified,
            "vertices": self.vertices(job),
            "attempts": [] if is_read else [attempt],
            "more": False,
        }

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:  # noqa: PLR0911 - one a route
        """Route one request; the lock is held and given up by waits."""
        url = urlparse(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        wait = float(query.get("wait", 0))
        match method, parts:
            case "POST", ["jobs", job_id, "logs"]:
                return self.logs(job_id, json.loads(body))
            case "POST", ["jobs", job_id, ("savepoints" | "stop") as kind]:
                return self.trigger(job_id, kind, json.loads(body))
            case "GET", ["jobs", job_id, "savepoints", trigger_id]:
                return self.operation(job_id, trigger_id)
            case "POST", ["jobs", *rest]:
                return self.wait_for_news(**json.loads(body)) if rest else self.submit(json.loads(body))
            case "GET", ["jobs", job_id, "status"]:
                return self.status(job_id, wait, int(query.get("since", 0)))
            case "GET", ["jobs", job_id, "execution-result"]:
                return self.execution_result(job_id, wait)
            case "PATCH", ["jobs", job_id, *beat]:
                return self.heartbeat(job_id, json.loads(body)["expiredTimestamp"]) if beat else self.cancel(job_id)
            case "GET", _:
                return self.shown(parts) or (404, {"errors": [f"Not found: {target}"]})
            case _:
                return 404, {"errors": [f"Not found: {target}"]}

    def shown(self, parts: list[str]) -> tuple[int, Any] | None:
        """What can be looked at; None for what cannot."""
        match parts:
            case ["overview"]:
                slots = {"taskmanagers": 1, "slots-total": 4, "slots-available": 3}
                return 200, {**slots, "flink-version": "0.1.0", "leader": "jm-1:8081"}
            case ["taskmanagers"]:
                shown = {"path": "tm:1", "slotsNumber": 4, "timeSinceLastHeartbeat": 1}
                return 200, {"taskmanagers": [shown | one for one in self.task_managers]}
            case ["jobs", "overview"]:
                return self.overview()
            case ["jobs", job_id] if job_id in self.jobs:
                return self.details(job_id)
            case ["jobs", job_id, "streams"] if job_id in self.jobs:
                return 200, {"jid": job_id, "now": self.now, "vertices": _streams_of(self.jobs[job_id])}
            case _:
                return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: FakeCluster

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        cluster = self.cluster
        with cluster.changed:
            cluster.requests.append((self.command, self.path))
            cluster.peers.add(self.client_address)
            cluster.changed.notify_all()
            if self.headers.get("authorization") != f"Bearer {TOKEN}":
                status, answer = 401, {"errors": ["the cluster's token is missing or wrong"]}
            else:
                status, answer = cluster.answer(self.command, self.path, body)
                cluster.changed.notify_all()
        if self.command == "POST" and cluster.lost_answers > 0:
            cluster.lost_answers -= 1
            self.close_connection = True
            return
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = _serve  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Silent."""


@contextmanager
def fake_cluster(make: Callable[[], FakeCluster] = FakeCluster) -> Iterator[FakeCluster]:
    """A running fake on a free port of 127.0.0.1."""
    cluster = make()
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    cluster.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _subtask(queries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"subtask": 0, "attempt": 0, "status": "RUNNING", "queries": queries}


def _told_query(fields: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"name": "", "batch-id": -1, "rows": 0, "backlog": -1, "watermark": 0, "progressed": 0}
    told |= {"idle": False, "has-triggered": True}
    told |= dict.fromkeys(("progressed", "state-rows", "state-bytes", "trigger-millis"), 0)
    told |= dict.fromkeys(("input-rows-per-second", "processed-rows-per-second"), 0.0)
    return told | {name.replace("_", "-"): value for name, value in fields.items()}


def _operators(job: FakeJob) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(vertex, one) for vertex in job.graph.get("vertices", ()) for one in vertex["operators"]]


def _has_queries(job: FakeJob) -> bool:
    return any(one.get("stream_sink") or one["code"].get("starts_queries") for _, one in _operators(job))


def _streams_of(job: FakeJob) -> list[dict[str, Any]]:
    """What the job has told, else its queries: those of its graph, and one of a script whose name has no `idle`."""
    if job.streams:
        return job.streams
    made = []
    for vertex, one in _operators(job):
        head = {"name": vertex["name"], "parallelism": vertex["parallelism"]}
        if sink := one.get("stream_sink"):
            made.append({**head, "uid": sink["uid"], "subtasks": []})
        elif one["code"].get("starts_queries") and "idle" not in job.graph["name"]:
            made.append({**head, "uid": "", "subtasks": [_subtask([_told_query({"name": "rows"})])]})
    return made

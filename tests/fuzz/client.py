"""Airflow's side: what a hostile or broken JobManager may answer to each call of the client.

Whoever asked hears an error of the client's own classes, or gets what he can use; nobody waits longer, and keeps more,
than the call says.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator, Sequence

import httpx

from airflow_flinklike import FlinklikeClient
from airflow_flinklike.client import JobState, operations
from airflow_flinklike.client.receiving import ANSWER_BYTES_MAX
from airflow_flinklike.exceptions import FlinklikeClientError, JobCanceledError, JobFailedError
from airflow_flinklike.task_instance.observation import JobObserver, LogSettings
from airflow_flinklike.triggers.conditions import ClusterWish, JobWish, look_at_cluster, look_at_job
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.fuzz.surface import MIB, Surface
from tests.kit.control_plane.job_graphs import lone

JOB = JobId("a" * 32)
_STATUSES = (200, 200, 200, 200, 202, 204, 301, 400, 401, 404, 409, 413, 429, 500, 503, 507)
_LONG_WAIT = 3600.0
_ASKED_MAX = 12


class _Clock:
    def __init__(self) -> None:
        self.waited = 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.waited += seconds
        assert self.waited < _LONG_WAIT, "it waits for ever"


def _finished(client: FlinklikeClient) -> object:
    found = client.result_within(JOB, wait=0)
    try:
        return None if found is None else json.dumps(found.value_or_raise())[:1]
    except (JobFailedError, JobCanceledError) as error:
        return (
            f"{type(error).__name__} {len(str(error)) > 0} {error.labels if isinstance(error, JobFailedError) else ''}"[
                :60
            ]
        )


def _observed(client: FlinklikeClient) -> object:
    observer = JobObserver(logging.getLogger("fuzz"), settings=LogSettings(10_000, "http://x/"), clock=lambda: 1e9)
    observer.observe(client, JobState(JOB, JobStatus.RUNNING, 1, ""))
    observer.observe(client, JobState(JOB, JobStatus.FINISHED, 2, ""))
    return json.dumps(observer.bookmark())[:1]


def _submitted(client: FlinklikeClient) -> object:
    return client.submit(lone(), job_id=JOB)


def _newest(client: FlinklikeClient) -> object:
    wish = JobWish(frozenset({JobStatus.RUNNING, JobStatus.FINISHED}), None, "name", 5)
    return client.run(look_at_job(wish))


_CALLS: tuple[Callable[[FlinklikeClient], object], ...] = (
    _submitted,
    lambda client: client.status(JOB),
    _finished,
    lambda client: client.cancel(JOB),
    lambda client: client.heartbeat(JOB, 1),
    lambda client: client.log(JOB, "b" * 32, 0, 0, stream="stdout", offset=0).next_offset,
    lambda client: client.run(operations.wait_for_news({JOB: 1}, wait=0, name="x")),
    _observed,
    _newest,
    lambda client: client.run(look_at_cluster(ClusterWish(1, has_spark=True))),
    lambda client: client.get("/overview"),
)


def _begin() -> Callable[[bytes], object]:
    answer, asked = [b""], [0]

    def handle(request: httpx.Request) -> httpx.Response:
        data = answer[0]
        headers = {"retry-after": data[2:6].decode("latin-1")} if data[1] & 16 else {}
        headers |= {"x-next-offset": data[2:4].decode("latin-1"), "x-size": "1"} if data[1] & 32 else {}
        safe = {name: "".join(c for c in value if c.isprintable() and c.isascii()) for name, value in headers.items()}
        asked[0] += 1
        status = _STATUSES[data[1] % 16] if asked[0] < _ASKED_MAX else 404
        return httpx.Response(status, headers=safe, content=data[2:], request=request)

    clock = _Clock()
    client = FlinklikeClient(
        ["http://h:1"], "t", retry_for=5.0, transport=httpx.MockTransport(handle), sleep=clock.sleep
    )

    def feed(data: bytes) -> object:
        answer[0] = data + b"\x00" * (2 - len(data))
        clock.waited, asked[0] = 0.0, 0
        call = _CALLS[answer[0][0] % len(_CALLS)]
        return str(type(call(client)).__name__)

    return feed


def _job(**more: object) -> dict[str, object]:
    return {"jid": JOB, "name": "name", "state": "RUNNING", "start-time": 10, "last-modification": 12, **more}


def _seeds() -> Sequence[bytes]:
    vertex = {
        "id": "b" * 32,
        "name": "v",
        "parallelism": 2,
        "tasks": {"RUNNING": 1, "FINISHED": 1},
        "progress": {"fraction": 0.5, "text": "half", "spark-tasks-total": 4, "spark-tasks-completed": 1},
    }
    piece = {
        "data": base64.b64encode(b"line\n").decode(),
        "next-offset": 5,
        "size": 5,
        "truncated": False,
        "dropped": 0,
    }
    attempt = {"vertex": "b" * 32, "subtask": 0, "attempt": 0, "ended": True, "missing": "", "logs": {"stdout": piece}}
    failure = {"class": "E", "message": "m", "stack-trace": "s", "kind": "USER", "failure-labels": {"a": "b"}}
    result = {"application-status": "FAILED", "result": None, "failure-cause": failure, "net-runtime": 5}
    manager = {"id": "tm", "freeSlots": 2, "spark": True, "state": "ready"}
    documents = {
        0: {"outcome": "SUBMITTED", "jobUrl": "/jobs/x", "warnings": ["a queue without options"]},
        1: {"status": "RUNNING", "last-modification": 7, "pending-reason": "slots"},
        2: {"status": {"id": "COMPLETED"}, "job-execution-result": result},
        3: {"errors": ["it is over", "since long"]},
        6: {"jobs": [_job()], "unknown": ["c" * 32]},
        7: {"vertices": [vertex], "attempts": [attempt], "more": False, "state": "RUNNING"},
        8: {"jobs": [_job()]},
        9: {"taskmanagers": [manager]},
        10: {"slots-total": 4},
    }
    seeds = [
        bytes([number, status]) + json.dumps(one).encode() for number, one in documents.items() for status in (0, 9)
    ]
    return [
        *seeds,
        bytes([5, 32]) + b"12",
        bytes([1, 28]) + b"1.5 ",
        bytes([1, 12]) + b"{}",
        bytes([1, 14]) + b"<html>",
    ]


# --- the same over a connection: what never ends ------------------------------------------------------------------


def _begin_streams() -> Callable[[bytes], object]:
    """The input says how pieces come: how large, how many, and after how long each of them."""

    def feed(data: bytes) -> object:
        size, count = 4096 + int.from_bytes(data[:3], "big"), 1 << min(40, data[3] if len(data) > 3 else 0)

        def pieces() -> Iterator[bytes]:
            piece, sent = b"[" * min(size, MIB), 0
            for _ in range(count):
                sent += len(piece)
                assert sent <= ANSWER_BYTES_MAX + 2 * MIB, "it takes everything"
                yield piece

        def handle(request: httpx.Request) -> httpx.Response:
            gzip = {"content-encoding": "gzip"} if data[-1:] == b"z" else {}
            assert request.headers["accept-encoding"] == "identity"
            return httpx.Response(200, headers=gzip, content=pieces(), request=request)

        with FlinklikeClient(["http://h:1"], "t", retry_for=0.0, transport=httpx.MockTransport(handle)) as client:
            return str(type(client.get("/overview")).__name__)

    return feed


SURFACES = (
    Surface("client", _begin, _seeds, (FlinklikeClientError,), prefix=2, cpu_seconds=3.0, smoke_inputs=1000),
    Surface(
        "client-streams",
        _begin_streams,
        lambda: [b"\x0f\xff\xff\x28x", b"\x00\xff\xff\x04z", b"\x00\x00\x05\x02x", b"\x0f\xff\xff\x28z"],
        (FlinklikeClientError,),
        cpu_seconds=5.0,
        peak_bytes=3 * ANSWER_BYTES_MAX,
        growth_bytes=3 * ANSWER_BYTES_MAX,
        smoke_inputs=20,
    ),
)

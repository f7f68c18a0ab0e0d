"""A port of REST: bodies for each route, of who may do all, and what is no request (R41, R52). Behind it are fakes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from runtime.aio.clock import SystemClock
from runtime.common.states import JobStatus
from runtime.rest.access.page_cookie import PageCookie
from runtime.rest.access.roles import TABLE
from tests.fuzz.port import AS_IT_IS, Ear, asked
from tests.fuzz.surface import MIB, Surface
from tests.kit.control_plane.job_graphs import diamond, lone
from tests.kit.rest.fakes import JOB, JOB_MASTER
from tests.kit.rest.server import PAGE_KEY, TOKEN, RestThread

_FORGET_EVERY = 500
_SHA256 = "c" * 64
_IDS = {
    "job_id": JOB,
    "job_master_id": JOB_MASTER,
    "task_manager_id": "tm-1",
    "vertex_id": f"{1:032x}",
    "index": "0",
    "attempt": "0",
    "stream": "stdout",
    "name": "alice",
    "sha256": _SHA256,
    "key": f"{_SHA256}-u1",
}
_OTHER_ID = f"{1:032x}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_ROUTES = sorted(TABLE)
_POST_WAIT = ("POST", "/jobs/wait")


def _request(number: int, body: bytes) -> bytes:
    method, path = _ROUTES[number % len(_ROUTES)]
    head = (
        f"{method} {_PARAMETER.sub(lambda found: _IDS.get(found[1], _OTHER_ID), path)} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def _form(body: str) -> bytes:
    kind = "Content-Type: application/x-www-form-urlencoded"
    return f"POST /ui HTTP/1.1\r\nHost: x\r\n{kind}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def _cookie() -> bytes:
    return PageCookie(PAGE_KEY, SystemClock()).made(TOKEN, is_encrypted=False).partition(b";")[0]


def _begin() -> Callable[[bytes], object]:
    served = RestThread(long_poll_max=0.01)
    served.__enter__()  # for as long as this process is there
    ear, port, fed = Ear(), served.server.port, 0

    def feed(data: bytes) -> object:
        nonlocal fed
        if fed % _FORGET_EVERY == 0:
            served.do(served.forget)
            served.put(JOB, JobStatus.RUNNING)
        fed += 1
        is_as_it_is = data[:1] == bytes([AS_IT_IS])
        sent = data[1:] if is_as_it_is else _request(data[0] if data else 0, data[1:])
        answer = asked(port, sent, is_all=is_as_it_is)
        ear.check()
        status = b"".join(answer.split(b" ", 2)[1:2])
        assert is_as_it_is or status, "a whole request has no answer"
        assert status != b"500", answer
        return status.decode(errors="replace")

    return feed


def _seeds() -> Sequence[bytes]:
    submit = {"job_id": JOB, "options": {"client": "me"}}
    bodies: dict[tuple[str, str], Sequence[object]] = {
        ("POST", "/jobs"): [{**submit, "job_graph": one.document()} for one in (lone(), diamond())],
        _POST_WAIT: [{"known": {JOB: 0}, "wait": 1.5, "name": "me"}, {"ids": [JOB], "since": 3}],
        ("POST", "/jobs/{job_id}/move"): [{"to": JOB_MASTER}],
        ("PATCH", "/jobs/{job_id}/clientHeartbeat"): [{"expiredTimestamp": 1_750_000_000_000}],
        ("POST", "/jobs/{job_id}/logs"): [{"streams": ["stdout"], "position": {}, "limit": 100, "subtask": 0}],
        ("POST", "/blobs/missing"): [{"digests": [{"sha256": _SHA256, "size_bytes": 3}]}],
        ("POST", "/tokens"): [{"name": "alice", "role": "viewer", "namespace": "*", "lifetime": 60}],
        ("POST", "/tokens/{name}/rotate"): [{"lifetime": 60}],
    }
    whole = [
        bytes([number]) + json.dumps(one).encode()
        for number, route in enumerate(_ROUTES)
        for one in bodies.get(route, [{}])
    ]
    raw = [
        *(_request(number, b"") for number in range(len(_ROUTES))),
        _request(_ROUTES.index(_POST_WAIT), b"{}").replace(b"close", b"keep-alive") * 2,
        b"POST /jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"GET /overview HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n",
        b"GET /ui?token=x&%6c=%00 HTTP/1.0\r\nCookie: a=b\r\nOrigin: http://x\r\nForwarded: for=1.1.1.1\r\n\r\n",
        b"GET /ui HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\nCookie: " + _cookie() + b"\r\n\r\n",
        _form(f"token={TOKEN}") + _form("sign-out=1"),
    ]
    return [*whole, *(bytes([AS_IT_IS]) + one for one in raw)]


SURFACES = (
    Surface(
        "rest-port",
        _begin,
        _seeds,
        (),
        prefix=1,
        tokens=(
            b"\r\n",
            b"\r\n\r\n",
            b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Expect: 100-continue\r\n",
            b"Upgrade: h2c\r\n",
            b"Range: bytes=0-\r\n",
            b"%00",
            b"%2e%2e/",
            b"/v1",
        ),
        cpu_seconds=3.0,  # with that of the server's thread, which may be busy with the connection before
        peak_bytes=64 * MIB,
    ),
)

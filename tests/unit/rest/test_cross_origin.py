"""R41: requests that a page of another origin cannot make, and that other clients are served as before."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from runtime.common.states import JobStatus
from runtime.rest.app import create_app
from runtime.rest.forwarding.forward_seal import FORWARDED, SEAL, ForwardSeal
from runtime.security.cluster_key import ClusterKey
from tests.kit.rest.fakes import JOB, RestFakes, shown

TOKEN = "the-cluster-token"
OURS = "http://jm-1:8081"
PROXIES = ("jobs.example", "gate.example:8443", "::2")
JSON = {"content-type": "application/json"}
KEY = ForwardSeal(ClusterKey(b"k" * 32))


@pytest.fixture
def fakes() -> RestFakes:
    found = RestFakes()
    found.dispatcher.put(JOB, JobStatus.RUNNING)
    return found


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    """An endpoint without authentication, at its own name."""
    context = replace(fakes.context(), forward_seal=KEY)
    app = create_app(context, sign_in=None, content_length_max=1 << 20, hosts={"jm-1"}, allowed_hosts=PROXIES)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=OURS) as client:
        yield client


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "text/plain; a=application/json", "application/jsonp"],
)
async def test_what_a_form_or_a_simple_request_can_send_is_no_submit(
    http: httpx.AsyncClient, fakes: RestFakes, kind: str
) -> None:
    content = json.dumps({"known": {JOB: 1}}).encode()
    for path in ("/jobs", "/v1/jobs", "/jobs/wait", f"/jobs/{JOB}/move", "/blobs/missing"):
        answer = await http.post(path, content=content, headers={"content-type": kind} if kind else {})
        assert (answer.status_code, "Content-Type: application/json" in answer.json()["errors"][0]) == (415, True)
    assert fakes.dispatcher.submitted == []


@pytest.mark.asyncio
async def test_a_form_with_a_file_is_refused_by_who_knows_flinks_client(
    http: httpx.AsyncClient, fakes: RestFakes
) -> None:
    answer = await http.post("/jobs", files={"request": b"{}"})
    assert (answer.status_code, fakes.dispatcher.submitted) == (400, [])
    for path in ("/jobs/wait", f"/jobs/{JOB}/move", "/blobs/missing", "/v1/tokens"):
        answer = await http.post(path, content=b"{}", headers={"content-type": "multipart/form-data"})
        assert answer.status_code == 415, "a page may send this anywhere, with JSON in it"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://jm-1.evil.example",
        "null",
        "x",
        "",
        # Of our name, and somebody else's port or scheme.
        "http://jm-1:9999",
        "http://jm-1",
        "https://jm-1:8081",
        "http://jobs.example:9999",
        "https://gate.example",
        "http://jm-1:8081@evil.example",
        "ftp://jm-1:8081",
    ],
)
async def test_a_page_of_another_origin_changes_nothing(http: httpx.AsyncClient, fakes: RestFakes, origin: str) -> None:
    tries = [("POST", "/taskmanagers/tm-1/drain"), ("PATCH", f"/jobs/{JOB}"), ("PUT", f"/blobs/{'1' * 64}")]
    tries += [("POST", f"/jobmasters/{'b' * 32}/drain"), ("POST", "/jobs")]
    for method, path in tries:
        answer = await http.request(method, path, headers={"origin": origin, **JSON})
        assert (answer.status_code, "another origin" in answer.json()["errors"][0]) == (403, True)
    assert (fakes.dispatcher.cancelled, fakes.resource_manager.is_draining) == ([], False)
    assert (await http.get("/jobs", headers={"origin": origin})).status_code == 200, (
        "no answer of ours lets it read this"
    )


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "origin", [OURS, "https://jobs.example", "https://JOBS.example:443", "https://gate.example:8443", "http://[::2]"]
)
async def test_pages_of_this_origin_and_of_its_proxy_may(
    http: httpx.AsyncClient, fakes: RestFakes, origin: str
) -> None:
    assert (await http.patch(f"/jobs/{JOB}", headers={"origin": origin})).status_code == 202
    assert fakes.dispatcher.cancelled == [JOB]


@pytest.mark.asyncio
async def test_no_get_of_a_page_cancels(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    """A link, a picture, or a page behind a proxy that has the browser's password."""
    path = f"/jobs/{JOB}/yarn-cancel"
    for headers in ({}, {"referer": "http://evil.example/"}, {"authorization": "Basic dTpw"}, {"cookie": "a=b"}):
        for prefix in ("", "/v1"):
            answer = await http.get(f"{prefix}{path}", headers=headers)
            assert (answer.status_code, "X-Requested-With" in answer.json()["errors"][0]) == (403, True)
    assert fakes.dispatcher.cancelled == []
    for meant in ({"x-requested-with": "XMLHttpRequest"}, {"authorization": "Bearer t"}):
        assert (await http.get(path, headers=meant)).status_code == 202
    assert fakes.dispatcher.cancelled == [JOB, JOB]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("jm-1:8081", 200),
        ("JM-1", 200),
        ("jobs.example", 200),
        ("localhost:8081", 200),
        ("127.0.0.1:8081", 200),
        ("10.1.2.3", 200),
        ("[::1]:8081", 200),
        ("jm-1.:8081", 200),
        ("gate.example", 200),
        ("evil.example:8081", 403),
        ("jm-1.evil.example", 403),
        ("127.0.0.1.evil.example:8081", 403),
        ("[evil.example]:8081", 403),
        ("[::1]x.evil", 403),
        ("[::1", 403),
        ("127.0.0.1:8081@evil.example", 403),
        ("127.0.0.1/evil.example", 403),
        ("", 403),
    ],
)
async def test_without_a_token_nobody_is_answered_who_asks_for_another_host(
    http: httpx.AsyncClient, host: str, status: int
) -> None:
    """DNS rebinding: the page's own name leads here, and for the browser all is of one origin."""
    assert (await http.get("/overview", headers={"host": host})).status_code == status
    answer = await http.get("/ui", headers={"host": host})
    assert answer.status_code == status
    if status == 403:
        assert "rest.allowed-hosts" in answer.json()["errors"][0]
        assert (await http.post("/jobs", headers={"host": host, **JSON}, content=b"{}")).status_code == 403


@pytest.mark.asyncio
async def test_what_names_no_host_or_several_is_not_answered(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    several = [("host", "evil.example:8081"), ("host", "127.0.0.1:8081"), *JSON.items()]
    answer = await http.post("/jobs", headers=several, content=b"{}")
    assert (answer.status_code, "several headers Host" in answer.json()["errors"][0]) == (400, True)
    request = http.build_request("POST", "/jobs", headers=JSON, content=b"{}")
    del request.headers["host"]
    assert (await http.send(request)).status_code == 403
    assert fakes.dispatcher.submitted == []


@pytest.mark.asyncio
async def test_who_has_the_token_may_ask_by_any_name(fakes: RestFakes) -> None:
    """A page does not have it; a service's name is not known here."""
    app = create_app(fakes.context(), sign_in=shown(TOKEN), content_length_max=1 << 20, hosts=())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://service.cluster") as client:
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert (await client.get("/overview", headers=headers)).status_code == 200
        assert (await client.post("/taskmanagers/tm-1/drain", headers=headers)).status_code == 202
        other = {**headers, "origin": "http://evil.example"}
        assert (await client.post("/taskmanagers/tm-1/drain", headers=other)).status_code == 403
        assert (await client.get(f"/jobs/{JOB}/yarn-cancel", headers=headers)).status_code == 202


@pytest.mark.asyncio
async def test_all_hosts_may_be_allowed(fakes: RestFakes) -> None:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts=(), allowed_hosts={"*"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://any.name") as client:
        assert (await client.get("/overview")).status_code == 200


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "application/json; charset=UTF-8", "connection": "close"},  # Flink's command line
        {"content-type": "application/json"},
        {"content-type": "application/json", "user-agent": "curl/8.5.0", "accept": "*/*"},
    ],
)
async def test_clients_that_are_no_browsers_go_on(http: httpx.AsyncClient, headers: Mapping[str, str]) -> None:
    assert (await http.request("GET", "/jobs/overview", headers=headers, content=b"{}")).status_code == 200
    assert (await http.request("PATCH", f"/jobs/{JOB}", headers=headers, content=b"{}")).status_code == 202
    assert (await http.post("/jobs/wait", headers=headers, content=b'{"ids": []}')).status_code == 200


@pytest.mark.asyncio
async def test_bodies_without_a_type_are_taken_where_there_is_none(http: httpx.AsyncClient) -> None:
    """`curl -X POST`, and PUT, for which every browser asks before."""
    assert (await http.post("/taskmanagers/tm-1/drain")).status_code == 202
    assert (await http.put(f"/blobs/{'1' * 64}", content=b"abc")).status_code == 201


@pytest.mark.asyncio
async def test_a_stand_by_has_looked_already(http: httpx.AsyncClient) -> None:
    """It asks under the leader's name for a page of its own."""
    scope = {"method": "PATCH", "raw_path": f"/jobs/{JOB}".encode(), "query_string": b""}
    seal = KEY.of(scope, [(FORWARDED, b"10.0.0.9")]).decode()
    headers = {FORWARDED.decode(): "10.0.0.9", SEAL.decode(): seal, "origin": "http://jm-2:8081"}
    assert (await http.patch(f"/jobs/{JOB}", headers=headers)).status_code == 202


@pytest.mark.asyncio
@pytest.mark.parametrize("seal", [None, "0" * 64])
@pytest.mark.parametrize("has_key", [True, False])
async def test_who_only_says_that_it_is_a_stand_by_is_judged_like_all_others(
    fakes: RestFakes, seal: str | None, *, has_key: bool
) -> None:
    context = replace(fakes.context(), forward_seal=KEY if has_key else None)
    app = create_app(context, sign_in=None, content_length_max=1 << 20, hosts={"jm-1"})
    headers = {FORWARDED.decode(): "1", **({SEAL.decode(): seal} if seal else {})}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=OURS, headers=headers) as client:
        for more in ({"origin": "http://evil.example"}, {"host": "evil.example:8081"}):
            assert (await client.patch(f"/jobs/{JOB}", headers=more)).status_code == 403
        assert (await client.get("/jobs", headers={"host": "evil.example"})).status_code == 403
    assert fakes.dispatcher.cancelled == []

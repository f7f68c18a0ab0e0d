"""R58: Spark's own pages are an origin of their own, opened by who may see all jobs."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from starlette.types import ASGIApp, Scope

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope as TaskScope
from runtime.common.errors import UnavailableError
from runtime.gateways.task_executor import PAGE_BYTES_MAX, SparkPageResponse
from runtime.rest.access.page_cookie import PageCookie
from runtime.rest.access.sign_in import bearer_of
from runtime.rest.app import create_app
from runtime.rest.connections.tls import RestTls
from runtime.rest.forwarding.forward_seal import FORWARDED, SEAL, ForwardSeal
from runtime.rest.server import RestServer, RestSettings
from runtime.rest.spark_ui.app import COOKIE, spark_ui_app
from runtime.rest.spark_ui.desk import SparkUi, SparkUiSettings
from runtime.rest.spark_ui.page_answers import page_answer, unpacked
from runtime.rest.spark_ui.views import CODE_SECONDS, OPEN_OF_ONE_MAX, VIEW_SECONDS, Opening, SparkUiViews
from runtime.security.cluster_key import ClusterKey
from runtime.security.principals import ADMIN, Principal, Role
from tests.kit.rest.fakes import FakeTaskExecutor, RestFakes
from tests.kit.services.certificates import Made, fixed

PAGES = "http://pages:8083"
KEY = "0123456789abcdef"
SEE_ALL, SEE_ONE = "token-of-a-viewer", "token-of-a-viewer-of-one"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html;charset=utf-8\r\nServer: Jetty\r\n\r\n"
PAGE = SparkPageResponse(HEAD, gzip.compress(b"<html>stages</html>"))
ASKS = {"authorization": f"Bearer {SEE_ALL}"}


@dataclass
class Wall:
    """A clock that a test sets."""

    seconds: float = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def epoch_millis(self) -> int:
        return int(self.seconds * 1000)


@dataclass
class Cluster:
    """A JobManager's two origins over one TaskManager."""

    clock: Wall = field(default_factory=Wall)
    fakes: RestFakes = field(default_factory=RestFakes)
    people: dict[str, Principal] = field(
        default_factory=lambda: {
            SEE_ALL: Principal("vera", Role.VIEWER, "*", "token"),
            SEE_ONE: Principal("nora", Role.ADMIN, "sales", "token"),
        }
    )
    has_sign_in: bool = True

    def __post_init__(self) -> None:
        self.executor.page = PAGE
        connect = self.fakes.context().task_executor
        self.ui = SparkUi(SparkUiSettings("127.0.0.1", 8083), self.clock, connect, port=8083)
        seal = ForwardSeal(ClusterKey(b"k" * 32))
        self.context = replace(self.fakes.context(), spark_ui=self.ui, forward_seal=seal, clock=self.clock)
        self.seal = seal

    @property
    def executor(self) -> FakeTaskExecutor:
        assert isinstance(self.fakes.task_executor, FakeTaskExecutor)
        return self.fakes.task_executor

    @property
    def sign_in(self) -> Any:
        return self.principal if self.has_sign_in else None

    def principal(self, scope: Scope) -> Principal | None:
        return self.people.get(bearer_of(scope))

    def dashboard(self) -> ASGIApp:
        return create_app(self.context, sign_in=self.sign_in, content_length_max=1 << 20, hosts={"test"})

    def pages(self) -> ASGIApp:
        return spark_ui_app(self.context, self.ui, self.sign_in, {"pages"}, ())


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest_asyncio.fixture
async def dashboard(cluster: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=cluster.dashboard())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


@pytest_asyncio.fixture
async def pages(cluster: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=cluster.pages()), base_url=PAGES) as client:
        yield client


async def code(dashboard: httpx.AsyncClient, environment: str = "", **headers: str) -> str:
    answer = await dashboard.post(
        "/taskmanagers/tm-1/spark-ui", json={"environment": environment}, headers={**ASKS, **headers}
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["code"])


async def opened(dashboard: httpx.AsyncClient, pages: httpx.AsyncClient, environment: str = "") -> str:
    """The path of a view, whose cookie the client keeps."""
    answer = await pages.post("/open", json={"code": await code(dashboard, environment)}, headers={"origin": PAGES})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["path"])


@pytest.mark.asyncio
async def test_a_page_is_opened_by_a_code_and_shown_by_a_cookie_of_its_own(
    cluster: Cluster, dashboard: httpx.AsyncClient, pages: httpx.AsyncClient
) -> None:
    view = await opened(dashboard, pages, KEY)
    (cookie,) = pages.cookies.jar
    assert (cookie.name, cookie.path) == (COOKIE, view)
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "Strict"
    answer = await pages.get(f"{view}stages/stage/?id=1&attempt=0")
    assert (answer.status_code, answer.text) == (200, "<html>stages</html>")
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "server" not in answer.headers
    (asked,) = cluster.executor.pages_asked
    assert (asked.environment, asked.target, asked.prefix) == (KEY, "/stages/stage/?id=1&attempt=0", view[:-1])
    head = await pages.head(f"{view}jobs/")
    assert (head.status_code, head.content) == (200, b"")
    plain = await pages.get(f"{view}jobs/", headers={"accept-encoding": "identity"})
    assert plain.text == "<html>stages</html>"
    assert "content-encoding" not in plain.headers


@pytest.mark.asyncio
async def test_a_code_opens_once_and_for_a_minute(
    cluster: Cluster, dashboard: httpx.AsyncClient, pages: httpx.AsyncClient
) -> None:
    one = await code(dashboard)
    assert (await pages.post("/open", json={"code": one})).status_code == 200
    assert (await pages.post("/open", json={"code": one})).status_code == 403
    late = await code(dashboard)
    cluster.clock.seconds += CODE_SECONDS
    assert (await pages.post("/open", json={"code": late})).status_code == 403
    wrong: list[Any] = [{}, {"code": 7}, [], "x" * 5000]
    for nonsense in wrong:
        assert (await pages.post("/open", json=nonsense)).status_code == 403
    for half in (rb'{"code":"\ud800"}', '{"code":"é"}'.encode(), b'{"code":null}'):
        assert (
            await pages.post("/open", content=half, headers={"content-type": "application/json"})
        ).status_code == 403, half


@pytest.mark.asyncio
async def test_only_who_sees_all_namespaces_opens_them(cluster: Cluster, dashboard: httpx.AsyncClient) -> None:
    path = "/taskmanagers/tm-1/spark-ui"
    refused = await dashboard.post(path, json={}, headers={"authorization": f"Bearer {SEE_ONE}"})
    assert refused.status_code == 403
    assert "of all namespaces" in refused.text
    assert (await dashboard.post(path, json={})).status_code == 401
    assert (await dashboard.post("/taskmanagers/none/spark-ui", json={}, headers=ASKS)).status_code == 404
    wrong = await dashboard.post(path, json={"environment": "../x"}, headers=ASKS)
    assert wrong.status_code == 400
    assert cluster.ui.views.take("") is None


@pytest.mark.asyncio
async def test_pages_close_when_the_sign_in_ends_or_may_no_more(
    cluster: Cluster, dashboard: httpx.AsyncClient, pages: httpx.AsyncClient
) -> None:
    view = await opened(dashboard, pages)
    cluster.people[SEE_ALL] = Principal("vera", Role.VIEWER, "sales", "token")
    assert (await pages.get(f"{view}jobs/")).status_code == 403
    cluster.people[SEE_ALL] = Principal("vera2", Role.VIEWER, "*", "token")
    assert (await pages.get(f"{view}jobs/")).status_code == 403
    del cluster.people[SEE_ALL]
    refused = await pages.get(f"{view}jobs/")
    assert refused.status_code == 403
    assert "holds no more" in refused.text
    assert cluster.executor.pages_asked == []


async def signed_in(browser: httpx.AsyncClient) -> dict[str, str]:
    """What its scripts send beside the cookie, which the client keeps."""
    answer = await browser.post("/ui", data={"token": SEE_ALL}, headers={"accept": "application/json"})
    return {"x-csrf-token": answer.json()["csrf-token"]}


async def opened_in(browser: httpx.AsyncClient, pages: httpx.AsyncClient, csrf: dict[str, str]) -> str:
    answer = await browser.post("/taskmanagers/tm-1/spark-ui", json={}, headers=csrf)
    assert answer.status_code == 200, answer.text
    return str((await pages.post("/open", json={"code": answer.json()["code"]})).json()["path"])


@pytest.mark.asyncio
async def test_signing_out_closes_what_this_sign_in_has_opened(cluster: Cluster, pages: httpx.AsyncClient) -> None:
    """Two browsers of one token: the other one goes on."""
    cluster.context = replace(cluster.context, page_cookie=PageCookie(ClusterKey(b"k" * 32), cluster.clock))
    app = httpx.ASGITransport(app=cluster.dashboard())
    async with (
        httpx.AsyncClient(transport=app, base_url="http://test") as browser,
        httpx.AsyncClient(transport=app, base_url="http://test") as other,
    ):
        csrf, csrf_of_other = await signed_in(browser), await signed_in(other)
        own, of_other = await opened_in(browser, pages, csrf), await opened_in(other, pages, csrf_of_other)
        by_token = await opened(other, pages)
        waiting = (await browser.post("/taskmanagers/tm-1/spark-ui", json={}, headers=csrf)).json()["code"]
        assert (await pages.get(f"{own}jobs/")).status_code == 200
        assert (await browser.post("/ui", data={"sign-out": "1"})).status_code == 303
        assert (await pages.get(f"{own}jobs/")).status_code == 404
        assert (await pages.post("/open", json={"code": waiting})).status_code == 403
        for view in (of_other, by_token):
            assert (await pages.get(f"{view}jobs/")).status_code == 200


@pytest.mark.asyncio
async def test_signing_out_at_a_stand_by_closes_them_at_the_leader(
    cluster: Cluster, pages: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.context = replace(cluster.context, page_cookie=PageCookie(ClusterKey(b"k" * 32), cluster.clock))
    fakes = RestFakes()
    fakes.is_leading = False
    cluster.ui.settings = SparkUiSettings("127.0.0.1", 0)
    ui = SparkUi(cluster.ui.settings, cluster.clock, fakes.context().task_executor)
    stand_by = replace(fakes.context(), spark_ui=ui, forward_seal=cluster.seal, page_cookie=cluster.context.page_cookie)
    servers = [
        RestServer(one, RestSettings("127.0.0.1", 0, 1 << 20), sign_in=cluster.sign_in)
        for one in (cluster.context, stand_by)
    ]
    async with TaskScope("test") as scope:
        for server in servers:
            server.bind()
            await server.start(scope)
        fakes.other_leader.set(f"127.0.0.1:{servers[0].port}")
        origin = f"http://127.0.0.1:{servers[1].port}"
        async with httpx.AsyncClient(base_url=origin, headers={"origin": origin}) as browser:
            view = await opened_in(browser, pages, await signed_in(browser))
            assert (await browser.post("/ui", data={"sign-out": "1"})).status_code == 303
            assert (await pages.get(f"{view}jobs/")).status_code == 404
            assert (len(browser.cookies), "stay open" in caplog.text) == (0, False)
            await signed_in(browser)
            fakes.other_leader.set("127.0.0.1:1")
            assert (await browser.post("/ui", data={"sign-out": "1"})).status_code == 303
            assert "pages of Spark may stay open" in caplog.text
        for server in servers:
            server.stop()


@pytest.mark.asyncio
async def test_pages_of_one_environment_open_no_other(
    cluster: Cluster, dashboard: httpx.AsyncClient, pages: httpx.AsyncClient
) -> None:
    first, second = await opened(dashboard, pages, "aa"), await opened(dashboard, pages, "bb")
    (own,) = [one.value for one in pages.cookies.jar if one.path == first]
    pages.cookies.clear()
    shown = {"cookie": f"{COOKIE}={own}"}
    assert (await pages.get(f"{first}jobs/", headers=shown)).status_code == 200
    assert (await pages.get(f"{second}jobs/", headers=shown)).status_code == 404
    assert (await pages.get(f"{first}jobs/")).status_code == 404
    cluster.clock.seconds += VIEW_SECONDS
    assert (await pages.get(f"{first}jobs/", headers=shown)).status_code == 404
    assert [one.environment for one in cluster.executor.pages_asked] == ["aa"]


@pytest.mark.asyncio
async def test_what_signs_in_to_the_dashboard_opens_no_page_here(
    cluster: Cluster, dashboard: httpx.AsyncClient, pages: httpx.AsyncClient
) -> None:
    view = await opened(dashboard, pages)
    pages.cookies.clear()
    assert (await pages.get(f"{view}jobs/", headers=ASKS)).status_code == 404
    assert (await pages.get("/overview", headers=ASKS)).status_code == 404
    assert cluster.executor.pages_asked == []


@pytest.mark.asyncio
async def test_nothing_but_a_get_reaches_a_jvm(
    cluster: Cluster, dashboard: httpx.AsyncClient, pages: httpx.AsyncClient
) -> None:
    view = await opened(dashboard, pages)
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert (await pages.request(method, f"{view}jobs/job/kill/?id=1")).status_code == 405
    worker = await pages.get(f"{view}static/webui.js", headers={"service-worker": "script"})
    assert worker.status_code == 403
    for target in (f"jobs/?{'x' * 4000}", "a%20b/", "jobs//job", ";a"):
        url = httpx.URL(PAGES).copy_with(raw_path=f"{view}{target}".encode())
        assert (await pages.get(url)).status_code == 400, target
    foreign = await pages.post("/open", json={"code": "x"}, headers={"origin": "http://test"})
    assert foreign.status_code == 403
    assert cluster.executor.pages_asked == []


@pytest.mark.asyncio
async def test_what_goes_wrong_is_said(
    cluster: Cluster, dashboard: httpx.AsyncClient, pages: httpx.AsyncClient
) -> None:
    view = await opened(dashboard, pages, KEY)
    cluster.executor.page = None
    gone = await pages.get(f"{view}jobs/")
    assert gone.status_code == 404
    assert "is not here" in gone.text
    for page in (
        SparkPageResponse(b"", PAGE.body),
        SparkPageResponse(HEAD, bytes(PAGE_BYTES_MAX)),
        SparkPageResponse(HEAD.replace(b"200 OK", b"101 Switching"), PAGE.body),
        SparkPageResponse(HEAD[:-2] + b"bad header\r\n\r\n", PAGE.body),
    ):
        cluster.executor.page = page
        assert (await pages.get(f"{view}jobs/")).status_code == 503, page.head
    cluster.executor.page = SparkPageResponse(HEAD, b"not packed")
    assert (await pages.get(f"{view}jobs/", headers={"accept-encoding": "identity"})).status_code == 503
    cluster.fakes.is_leading = False
    assert (await pages.get(f"{view}jobs/")).status_code == 503
    assert (await pages.get("/")).status_code == 503


@pytest.mark.asyncio
async def test_without_authentication_pages_are_still_opened_one_by_one(cluster: Cluster) -> None:
    cluster.has_sign_in = False
    async with (
        httpx.AsyncClient(transport=httpx.ASGITransport(app=cluster.dashboard()), base_url="http://test") as board,
        httpx.AsyncClient(transport=httpx.ASGITransport(app=cluster.pages()), base_url=PAGES) as pages,
    ):
        view = await opened(board, pages)
        assert (await pages.get(f"{view}jobs/")).status_code == 200
        pages.cookies.clear()
        assert (await pages.get(f"{view}jobs/")).status_code == 404
        assert (await pages.get("/", headers={"host": "rebound.example"})).status_code == 403


@pytest.mark.asyncio
async def test_the_answer_says_where_the_pages_are(cluster: Cluster, dashboard: httpx.AsyncClient) -> None:
    path = "/taskmanagers/tm-1/spark-ui"
    told = (await dashboard.post(path, json={}, headers=ASKS)).json()
    assert (told["address"], told["port"]) == ("", 8083)
    headers = [(FORWARDED, b"10.0.0.7"), (b"authorization", ASKS["authorization"].encode())]
    scope = {"method": "POST", "raw_path": path.encode(), "query_string": b""}
    sealed = {SEAL.decode(): cluster.seal.of(scope, headers).decode(), FORWARDED.decode(): "10.0.0.7", **ASKS}
    by_stand_by = (await dashboard.post(path, json={}, headers=sealed)).json()
    assert by_stand_by["address"] == "http://jm-1:8083"
    cluster.ui.settings = SparkUiSettings("127.0.0.1", 8083, "https://spark.example")
    assert (await dashboard.post(path, json={}, headers=ASKS)).json()["address"] == "https://spark.example"


@pytest.mark.asyncio
async def test_without_the_port_nothing_is_opened(cluster: Cluster) -> None:
    cluster.context = replace(cluster.context, spark_ui=None)
    transport = httpx.ASGITransport(app=cluster.dashboard())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as board:
        answer = await board.post("/taskmanagers/tm-1/spark-ui", json={}, headers=ASKS)
    assert answer.status_code == 409
    assert "rest.spark-ui.port" in answer.text


@pytest.mark.parametrize(
    ("location", "leads_to"),
    [
        ("http://spark/jobs/", "/v/jobs/"),
        ("/jobs/?id=1", "/v/jobs/?id=1"),
        ("http://spark/v/stages/", "/v/stages/"),
        ("http://evil.example/x", "/v/jobs/"),
        ("//evil.example/x", "/v/jobs/"),
        ("http://spark//evil.example", "/v/jobs/"),
        ("javascript:alert(1)", "/v/jobs/"),
        ("http://[", "/v/jobs/"),
        ("", "/v/jobs/"),
    ],
)
def test_a_redirect_stays_within_the_view(location: str, leads_to: str) -> None:
    head = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nSet-Cookie: a=b\r\n\r\n".encode()
    headers = dict(page_answer(head, b"", view="/v", is_static=False).headers)
    assert headers[b"location"].decode() == leads_to
    assert b"set-cookie" not in headers


def test_a_policy_of_the_jvm_forbids_more_and_allows_nothing() -> None:
    head = HEAD[:-2] + b"Content-Security-Policy: script-src *\r\nAccess-Control-Allow-Origin: *\r\n\r\n"
    answer = page_answer(head, b"", view="/v", is_static=True)
    policies = [value for name, value in answer.headers if name == b"content-security-policy"]
    assert len(policies) == 2
    assert b"default-src 'self'" in policies[0]
    assert not any(name.startswith(b"access-control") for name, _ in answer.headers)


def test_what_unpacks_to_too_much_or_is_cut_off_is_refused() -> None:
    with pytest.raises(UnavailableError):
        unpacked(gzip.compress(bytes(33 << 20)))
    with pytest.raises(UnavailableError):
        unpacked(gzip.compress(b"x" * 1000)[:-9])


def test_one_principal_closes_only_its_own_pages() -> None:
    views = SparkUiViews(Wall())
    opening = Opening("ann", "t", "tm-1", "h:1", "")
    view_id, cookie = views.open(opening)
    other = views.open(replace(opening, principal="bob"))
    for _ in range(OPEN_OF_ONE_MAX):
        views.open(opening)
    assert views.find(view_id, [cookie]) is None
    assert views.find(other[0], [other[1]]) is not None


def test_an_admin_of_all_may_look() -> None:
    assert ADMIN.is_of_all


@pytest.mark.asyncio
@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_the_pages_have_a_port_of_their_own_with_the_certificate_of_rest(*, is_encrypted: bool) -> None:
    cluster = Cluster()
    ca = Made.new()
    tls = RestTls(fixed(ca.material(ca.shown())), asks_clients=False) if is_encrypted else None
    cluster.ui.settings = SparkUiSettings("127.0.0.1", 0)
    context = replace(cluster.context, tls=tls, clock=SystemClock())
    server = RestServer(context, RestSettings("127.0.0.1", 0, 1 << 20), sign_in=cluster.sign_in)
    server.bind()
    assert cluster.ui.port not in {0, 8083, server.port}
    scheme = "https" if is_encrypted else "http"
    async with TaskScope("test") as scope, httpx.AsyncClient(verify=False) as client:
        await server.start(scope)
        board, pages = (f"{scheme}://127.0.0.1:{port}" for port in (server.port, cluster.ui.port))
        told = (await client.post(f"{board}/taskmanagers/tm-1/spark-ui", json={}, headers=ASKS)).json()
        assert told["port"] == cluster.ui.port
        opened = await client.post(f"{pages}/open", json={"code": told["code"]}, headers={"origin": pages})
        assert ("Secure" in opened.headers["set-cookie"]) is is_encrypted
        page = await client.get(f"{pages}{opened.json()['path']}jobs/")
        assert page.text == "<html>stages</html>"
        assert (page.headers.get("cross-origin-opener-policy") == "same-origin") is is_encrypted
        assert page.headers["x-content-type-options"] == "nosniff"
        server.stop()

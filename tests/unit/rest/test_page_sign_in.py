"""R48: a browser signs in at the page that it wants to see. Its cookie alone opens pages, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Message, Scope

from runtime.common.errors import UnauthenticatedError, UnavailableError
from runtime.common.states import JobStatus
from runtime.rest.access.audit import AuditLog
from runtime.rest.access.page_cookie import LIFE_SECONDS, PageCookie
from runtime.rest.access.roles import TABLE
from runtime.rest.access.sign_in import bearer_of
from runtime.rest.app import create_app
from runtime.security.cluster_key import ClusterKey
from runtime.security.principals import ADMIN, Principal, Role
from tests.kit.rest.fakes import JOB, RestFakes

pytestmark = pytest.mark.asyncio
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
TOKEN = "flt_" + "t" * 43
PAGE = f"/ui/jobs/{JOB}"
KEY = ClusterKey(b"k" * 32)
FORM = "application/x-www-form-urlencoded"


@dataclass
class Wall:
    """A clock whose date a test sets."""

    seconds: int = 1_700_000_000

    def monotonic(self) -> float:
        return float(self.seconds)

    def epoch_millis(self) -> int:
        return self.seconds * 1000


@dataclass
class Cluster:
    """Two JobManagers of one cluster: what one has told a browser, the other has never heard of."""

    audit_path: Path
    clock: Wall = field(default_factory=Wall)
    people: dict[str, Principal] = field(default_factory=lambda: {TOKEN: ADMIN})
    ended: str = ""
    is_blind: bool = False

    def __post_init__(self) -> None:
        self.fakes = RestFakes()
        self.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
        self.audit = AuditLog(self.audit_path, self.clock, files_max=1)

    def app(self, *, key: ClusterKey = KEY, allowed: tuple[str, ...] = ()) -> ASGIApp:
        context = replace(self.fakes.context(), page_cookie=PageCookie(key, self.clock), audit=self.audit)
        return create_app(
            context, sign_in=self.principal, content_length_max=1 << 20, hosts={"test"}, allowed_hosts=allowed
        )

    def principal(self, scope: Scope) -> Principal | None:
        if self.ended:
            raise UnauthenticatedError(self.ended)
        if self.is_blind:
            raise UnavailableError("the principals are not known yet")
        return self.people.get(bearer_of(scope))

    @asynccontextmanager
    async def browser(
        self, *, app: ASGIApp | None = None, url: str = "http://test", cookies: httpx.Cookies | None = None
    ) -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(app=app or self.app(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=url, headers=BROWSER, cookies=cookies) as client:
            yield client

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit_path.read_text(encoding="ascii").splitlines()]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "audit.jsonl")
    yield made
    made.audit.close()


async def test_a_stranger_gets_a_form_and_then_the_page(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        asked = await browser.get(PAGE)
        assert (asked.status_code, asked.headers["content-type"]) == (401, "text/html; charset=utf-8")
        assert '<input type="password" name="token"' in asked.text
        assert "action=" not in asked.text, "the form goes to the address of the page"
        assert "daily" not in asked.text
        let_in = await browser.post(PAGE, data={"token": f" {TOKEN}\n"})
        assert (let_in.status_code, let_in.headers["location"], let_in.content) == (303, f"./{JOB}", b"")
        assert let_in.headers["cache-control"] == "no-store", "it sets the cookie"
        shown = await browser.get(PAGE)
        assert (shown.status_code, 'name="signed-in-by" content="cookie"' in shown.text) == (200, True)


async def test_a_sign_in_loads_nothing_and_sends_its_form_only_to_itself(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        answers = [await browser.get(PAGE), await browser.post(PAGE, data={"token": "wrong"})]
    assert [one.status_code for one in answers] == [401, 401]
    for one in answers:
        policy = one.headers["content-security-policy"]
        assert all(f"{what} 'none'" in policy for what in ("default-src", "frame-ancestors", "base-uri"))
        assert "form-action 'self'" in policy
        style = re.findall("<style>(.*)</style>", one.text, re.DOTALL)[0]
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"style-src 'sha256-{digest}';" in policy
        (script,) = re.findall("<script>(.*)</script>", one.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}';" in policy
        assert "unsafe" not in policy
        assert one.headers["referrer-policy"] == "same-origin"
        assert one.headers["cache-control"] == "no-store"
        assert not re.search(r"<link|<img|src=|https?://", one.text)


async def test_the_csrf_token_of_the_page_lets_its_cookie_do_all_that_its_token_may(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        await browser.post(PAGE, data={"token": TOKEN})
        shown = await csrf(browser)
        assert shown not in (await browser.get(PAGE)).text, "who has copied the cookie has nothing"
        assert TOKEN not in shown
        own = {"x-csrf-token": shown, "accept": "application/json"}
        assert (await browser.get("/overview", headers=own)).status_code == 200
        cancelled = await browser.patch(f"/jobs/{JOB}", headers={**own, "origin": "http://test"})
        assert (cancelled.status_code, cluster.fakes.dispatcher.cancelled) == (202, [JOB])
        for wrong in ("", shown[:-1], shown.upper(), "x" * 64):
            assert (await browser.get("/overview", headers={"x-csrf-token": wrong})).status_code == 401
        twice = [("x-csrf-token", shown), ("x-csrf-token", shown)]
        assert (await browser.get("/overview", headers=twice)).status_code == 401
        evil = await browser.patch(f"/jobs/{JOB}", headers={**own, "origin": "http://evil.example"})
        assert (evil.status_code, len(cluster.fakes.dispatcher.cancelled)) == (403, 1)
        assert (await browser.get("/overview", headers={**own, "authorization": "Bearer wrong"})).status_code == 401
        jar = browser.cookies
    async with cluster.browser(cookies=jar) as elsewhere:
        assert (await elsewhere.get("/overview", headers=own)).status_code == 200, "each JobManager knows it"
    async with cluster.browser() as stranger:
        assert (await stranger.get("/overview", headers=own)).status_code == 401, "it is worth nothing alone"
    cluster.people["flt_" + "u" * 43] = Principal("vera", Role.VIEWER, "team-b")
    async with cluster.browser() as other:
        await other.post(PAGE, data={"token": "flt_" + "u" * 43})
        assert (await other.get("/overview", headers=own)).status_code == 401, "it is of one sign-in"
        its = {"x-csrf-token": await csrf(other, "flt_" + "u" * 43)}
        assert (await other.get(f"/jobs/{JOB}", headers=its)).status_code == 404, "a job of others"


async def csrf(browser: httpx.AsyncClient, token: str = TOKEN) -> str:
    """What the script of the sign-in keeps."""
    answer = await browser.post(PAGE, data={"token": token}, headers={"accept": "application/json"})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert "set-cookie" in answer.headers
    return str(answer.json()["csrf-token"])


async def test_the_script_of_the_sign_in_is_told_what_is_wrong(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        for token, reason in (("wrong", "is none of this cluster's"), ("", "The field was empty")):
            answer = await browser.post(PAGE, data={"token": token}, headers={"accept": "application/json"})
            assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
            assert reason in answer.json()["errors"][0]
        cluster.is_blind = True
        answer = await browser.post(PAGE, data={"token": TOKEN}, headers={"accept": "application/json"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_the_cookie_is_no_token_and_has_bounds(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        header = (await browser.post(PAGE, data={"token": TOKEN})).headers["set-cookie"]
    assert TOKEN not in header
    assert re.fullmatch(r"flinklike-[0-9a-f]{12}=[\w=-]+; Max-Age=43200; Path=/; HttpOnly; SameSite=Lax", header)
    async with cluster.browser(url="https://test") as browser:
        header = (await browser.post(PAGE, data={"token": TOKEN})).headers["set-cookie"]
        assert header.endswith("; SameSite=Lax; Secure")
    async with cluster.browser(app=cluster.app(allowed=("proxy",))) as browser:
        encrypted_there = {"origin": "https://proxy"}
        header = (await browser.post(PAGE, data={"token": TOKEN}, headers=encrypted_there)).headers["set-cookie"]
        assert header.endswith("; Secure")


async def test_a_cookie_opens_pages_and_nothing_else(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        await browser.post(PAGE, data={"token": TOKEN})
        assert (await browser.get(PAGE)).status_code == 200
        others = [(method, path) for method, path in TABLE if not (path == "/" or path.startswith("/ui"))]
        assert len(others) > 30
        for method, path in others:
            asked = re.sub(r"{\w+}", JOB, path)
            for place in (asked, f"/v1{asked}", f"/ui/..{asked}"):
                answer = await browser.request(
                    method, place, headers={"x-requested-with": "x", "origin": "http://test"}
                )
                assert answer.status_code in {401, 404, 303}, (method, place)
                assert answer.status_code == 401 or place.startswith("/ui/"), (method, place)
        for method in ("PUT", "PATCH", "DELETE"):
            assert (await browser.request(method, PAGE)).status_code == 401
    assert (cluster.fakes.dispatcher.cancelled, cluster.fakes.dispatcher.submitted) == ([], [])


async def test_another_jobmanager_takes_the_cookie_and_another_cluster_does_not(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        await browser.post(PAGE, data={"token": TOKEN})
        jar = browser.cookies
    async with cluster.browser(cookies=jar) as elsewhere:
        assert (await elsewhere.get(PAGE)).status_code == 200
    stranger = cluster.app(key=ClusterKey(b"x" * 32))
    (name,) = jar
    renamed = httpx.Cookies({f"flinklike-{ClusterKey(b'x' * 32).derived('names of cookies').hex()[:12]}": jar[name]})
    for cookies in (jar, renamed):
        async with cluster.browser(app=stranger, cookies=cookies) as elsewhere:
            assert (await elsewhere.get(PAGE)).status_code == 401


async def test_it_dies_with_the_token(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        await browser.post(PAGE, data={"token": TOKEN})
        del cluster.people[TOKEN]
        refused = await browser.get(PAGE)
        assert (refused.status_code, "has ended or was revoked" in refused.text) == (401, True)
        assert len(browser.cookies) == 0, "the browser forgets it"
        cluster.people[TOKEN] = ADMIN
        await browser.post(PAGE, data={"token": TOKEN})
        cluster.ended = "the JWT has expired: get a new one"
        assert (await browser.get(PAGE)).status_code == 401
        told = await browser.post(PAGE, data={"token": TOKEN})
        assert (told.status_code, cluster.ended in told.text) == (401, True)


async def test_it_ends_by_the_clock(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        header = (await browser.post(PAGE, data={"token": TOKEN})).headers["set-cookie"].partition(";")[0]
    async with cluster.browser() as browser:
        cluster.clock.seconds += LIFE_SECONDS
        assert (await browser.get(PAGE, headers={"cookie": header})).status_code == 200
        cluster.clock.seconds += 1
        assert (await browser.get(PAGE, headers={"cookie": header})).status_code == 401


async def test_it_has_the_rights_of_its_token(cluster: Cluster) -> None:
    cluster.people[TOKEN] = Principal("vera", Role.VIEWER, "team-b")
    async with cluster.browser() as browser:
        await browser.post("/ui", data={"token": TOKEN})
        page = await browser.get("/ui")
        assert page.status_code == 200
        hidden = await browser.get(f"/jobs/{JOB}", headers={"x-csrf-token": await csrf(browser)})
        assert (hidden.status_code, f"Job {JOB} not found" in hidden.text) == (404, True)


async def test_a_token_in_the_header_goes_before_the_cookie(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        await browser.post(PAGE, data={"token": TOKEN})
        assert (await browser.get(PAGE, headers={"authorization": "Bearer wrong"})).status_code == 401
        shown = await browser.get(PAGE, headers={"authorization": f"Bearer {TOKEN}"})
        assert (shown.status_code, "signed-in-by" in shown.text) == (200, False)


async def test_who_signs_out_is_a_stranger_again(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        await browser.post(PAGE, data={"token": TOKEN})
        out = await browser.post(PAGE, data={"sign-out": "1"})
        assert (out.status_code, out.headers["location"], len(browser.cookies)) == (303, f"./{JOB}", 0)
        asked = await browser.get(PAGE)
        assert (asked.status_code, "has ended" in asked.text) == (401, False)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://test:9999"])
async def test_no_other_page_signs_a_browser_in_or_out(cluster: Cluster, origin: str) -> None:
    async with cluster.browser() as browser:
        for form in ({"token": TOKEN}, {"sign-out": "1"}):
            answer = await browser.post(PAGE, data=form, headers={"origin": origin})
            assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


async def test_wrong_tokens_are_told_to_the_audit_log_without_them(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        for token in ("wrong-token", "x" * 9000, "\u202e<b>"):
            answer = await browser.post(PAGE, data={"token": token})
            assert (answer.status_code, answer.headers["connection"]) == (401, "close")
            assert "set-cookie" not in answer.headers
            assert token not in answer.text
        empty = await browser.post(PAGE, data={"token": ""})
        assert (empty.status_code, "The field was empty" in empty.text) == (401, True)
        await browser.post(PAGE, data={"token": TOKEN})
    told = [(one["action"], one["outcome"], one["object"], one["principal"]) for one in cluster.lines()]
    assert told == [("sign-in", "refused", PAGE, "")] * 3 + [("sign-in", "done", "", "admin")]
    assert not any(token in cluster.audit_path.read_text() for token in ("wrong-token", TOKEN))


@pytest.mark.parametrize(
    "body",
    [b"token=" + b"x" * 40_000, b"\xff\xfe", b"&".join(b"a%d=b" % number for number in range(20)), b"token=%ff%fe"],
    ids=["giant", "no text", "many fields", "no characters"],
)
async def test_what_is_no_form_is_refused_in_a_page(cluster: Cluster, body: bytes) -> None:
    async with cluster.browser() as browser:
        answer = await browser.post(PAGE, content=body, headers={"content-type": FORM})
        assert answer.status_code in {400, 401}
        assert (answer.headers["connection"], "set-cookie" in answer.headers) == ("close", False)
        assert "<h1>" in answer.text


async def test_a_form_that_does_not_come_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.rest.dashboard.page_sign_in.GRACE_SECONDS", 0.0)
    forever = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"token="
        await forever.wait()

    async with cluster.browser() as browser, asyncio.timeout(60):
        late = await browser.post(PAGE, content=body(), headers={"content-type": FORM})
    assert (late.status_code, "This form has not come within" in late.text) == (400, True)


async def test_a_token_for_which_browsers_keep_no_cookie_is_refused_in_words(cluster: Cluster) -> None:
    long = "x" * 6000
    cluster.people[long] = ADMIN
    async with cluster.browser() as browser:
        answer = await browser.post(PAGE, data={"token": long})
        assert (answer.status_code, "browsers keep no cookie" in answer.text) == (401, True)


async def raw_post(app: ASGIApp, target: bytes) -> tuple[int, dict[bytes, bytes]]:
    """A sign-in at an address that no client library would send."""
    path, _, query = target.partition(b"?")
    body = f"token={TOKEN}".encode()
    headers = [(b"host", b"test"), (b"content-type", FORM.encode()), (b"content-length", str(len(body)).encode())]
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "headers": headers,
        "client": ("10.0.0.1", 1),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.mark.parametrize(
    ("target", "location"),
    [
        (b"/", b"./"),
        (b"/ui", b"./ui"),
        (b"/ui/", b"./"),
        (b"/ui?next=//evil.example&a=http://evil.example/", b"./ui?next=//evil.example&a=http://evil.example/"),
        (b"/ui//evil.example", b"./evil.example"),
        (b"/ui/https://evil.example", b"./evil.example"),
        (b"/ui/javascript:alert(1)", b"./javascript:alert(1)"),
        (b"/ui/\\evil.example", b"./\\evil.example"),
        (b"/ui/x\r\nset-cookie: a=b", b"./"),
        (b"/ui?x\r\n\r\n<b>", b"./"),
        (b"/ui/\xc3\xa4", b"./"),
        (b"/ui/" + b"x" * 60_000, b"./" + b"x" * 60_000),
    ],
)
async def test_the_way_back_is_the_page_itself(cluster: Cluster, target: bytes, location: bytes) -> None:
    status, headers = await raw_post(cluster.app(), target)
    assert (status, headers[b"location"]) == (303, location)
    assert httpx.URL("http://test/ui/x").join(location.decode()[:200]).host == "test"


@pytest.mark.parametrize("target", [b"//evil.example", b"/\\evil.example", b"//ui", b"/uis", b"/jobs"])
async def test_other_addresses_take_no_form(cluster: Cluster, target: bytes) -> None:
    status, headers = await raw_post(cluster.app(), target)
    assert (status, b"location" in headers, b"set-cookie" in headers) == (415, False, False)


async def test_many_cookies_cost_little_and_a_strange_one_hides_none(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        pair = (await browser.post(PAGE, data={"token": TOKEN})).headers["set-cookie"].partition(";")[0]
        browser.cookies.clear()
        name = pair.partition("=")[0]
        strange = f"{name}=x; other=1; {name}=gAAAAA=="
        assert (await browser.get(PAGE, headers={"cookie": f"{strange}; {pair}"})).status_code == 200
        flood = "; ".join([f"{name}=x"] * 2000)
        assert (await browser.get(PAGE, headers={"cookie": f"{flood}; {pair}"})).status_code == 401


async def test_what_passes_is_asked_for_again_by_the_browser(cluster: Cluster) -> None:
    async with cluster.browser() as browser:
        await browser.post(PAGE, data={"token": TOKEN})
        cluster.is_blind = True
        waiting = await browser.get(PAGE)
        assert (waiting.status_code, 'http-equiv="refresh"' in waiting.text) == (503, True)
        cluster.is_blind = False
        assert (await browser.get(PAGE)).status_code == 200
        cluster.fakes.is_leading = False
        assert (await browser.get(PAGE)).status_code == 200, "the page itself waits for a leader"


async def test_programs_get_json_as_ever(cluster: Cluster) -> None:
    async with cluster.browser() as client:
        refused = await client.get(PAGE, headers={"accept": "*/*"})
        assert (refused.status_code, "A browser opens /ui" in refused.json()["errors"][0]) == (401, True)
        assert (await client.get(f"{PAGE}?token={TOKEN}")).status_code == 401, "no address holds a token"

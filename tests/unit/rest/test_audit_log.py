"""R49: what the audit log says, what it never says, and what a flood may cost it; and what one principal may ask."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Scope

from runtime.aio.clock import SystemClock
from runtime.common.errors import BackpressureError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.rest.access.audit import REFUSALS_MAX, REFUSALS_OF_ONE, REPEATED_SECONDS, SIGN_IN_SECONDS, AuditLog
from runtime.rest.access.principal_limits import LimitSettings, PrincipalLimits
from runtime.rest.access.sign_in import bearer_of
from runtime.rest.app import create_app
from runtime.security.principals import ADMIN, Principal, Role
from tests.kit.control_plane.job_graphs import lone
from tests.kit.control_plane.plane import eventually
from tests.kit.rest.fakes import JOB, JOB_MASTER, RestFakes

SAM = Principal("sam", Role.SUBMITTER, "team-a")
PEOPLE = {"s" * 43: SAM, "a" * 43: ADMIN, "v" * 43: Principal("vera", Role.VIEWER, "team-a")}
LIMITS = LimitSettings(requests_per_second=1000, running_max=100)


class SteppedClock(SystemClock):
    """Real, and moved by hand."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Box:
    """An application, its audit log, and the clock of both."""

    def __init__(self, path: Path, limits: LimitSettings = LIMITS, size_max: int = 1 << 20) -> None:
        self.path = path / "log" / "audit.jsonl"
        self.clock = SteppedClock()
        self.audit = AuditLog(self.path, self.clock, files_max=3, size_max=size_max)
        self.fakes = RestFakes()
        self.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
        shown = self.fakes.dispatcher.summaries[JOB]
        self.fakes.dispatcher.summaries[JOB] = replace(shown, submitter="sam", namespace="team-a")
        context = replace(self.fakes.context(), audit=self.audit, limits=limits, clock=self.clock)
        self.app = create_app(context, sign_in=_sign_in, content_length_max=1 << 20, hosts={"test"})

    @asynccontextmanager
    async def http(self, token: str) -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False, client=("10.1.2.3", 5))
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            yield client

    def lines(self, *actions: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.path.read_text(encoding="ascii").splitlines()]
        return [line for line in found if not actions or line["action"] in actions]


Make = Callable[..., Box]


@pytest.fixture
def make() -> Iterator[Make]:
    """Boxes whose logs are closed."""
    made: list[Box] = []

    def new(*arguments: Any, **more: Any) -> Box:
        made.append(Box(*arguments, **more))
        return made[-1]

    yield new
    for box in made:
        box.audit.close()


def _sign_in(scope: Scope) -> Principal | None:
    return PEOPLE.get(bearer_of(scope))


@pytest.mark.asyncio
async def test_what_is_done_is_told(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    other = "e" * 32
    async with box.http("s" * 43) as client:
        graph = lone().model_dump(mode="json")
        await client.post("/jobs", content=json.dumps({"job_id": other, "job_graph": graph}))
        await client.patch(f"/jobs/{JOB}")
        await client.get("/jobs/overview")
        await client.post("/taskmanagers/tm-1/drain")
    async with box.http("a" * 43) as client:
        await client.post("/taskmanagers/tm-1/drain")
        await client.post("/taskmanagers/tm-1/undrain")
        await client.post("/jobmasters/nobody/drain")
        await client.post(f"/jobs/{JOB}/move", json={"to": JOB_MASTER})
        await client.post("/tokens", json={"name": "eve", "role": "viewer"})
    told = [(one["principal"], one["action"], one["object"], one["outcome"]) for one in box.lines()]
    assert told == [
        ("sam", "sign-in", "", "done"),
        ("sam", "submit", other, "done"),
        ("sam", "cancel", JOB, "done"),
        ("sam", "drain", "tm-1", "refused"),
        ("admin", "sign-in", "", "done"),
        ("admin", "drain", "tm-1", "done"),
        ("admin", "undrain", "tm-1", "done"),
        ("admin", "drain", "nobody", "failed"),
        ("admin", "move", JOB, "done"),
        ("admin", "create-token", "eve", "failed"),
    ]
    assert {one["address"] for one in box.lines()} == {"10.1.2.3"}
    assert all(one["time"].endswith("+00:00") for one in box.lines())
    assert [one["to"] for one in box.lines("move")] == [JOB_MASTER]


@pytest.mark.asyncio
async def test_it_holds_no_token_and_nothing_that_steers_a_terminal(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    async with box.http("w" * 43) as client:
        await client.get("/ui", params={"token": "w" * 43})
        await client.get("/x%1b[2J%7f%0a%e2%80%ae/" + "y" * 5000, headers={"authorization": "Bearer nobody"})
    async with box.http("s" * 43) as client:
        await client.post("/taskmanagers/a%1b[2J%7f%0ab/drain")
    text = box.path.read_bytes()
    assert text.count(b"\n") == len(box.lines()) == 4
    assert not any(token in text for token in (b"w" * 43, b"s" * 43))
    assert all(32 <= byte < 127 for byte in text.replace(b"\n", b""))
    assert all(len(json.dumps(one)) < 2000 for one in box.lines())
    shown = "".join(str(value) for one in box.lines() for value in one.values())
    assert not any(character in shown for character in ("\x1b", "\x7f", "\u202e"))


@pytest.mark.asyncio
async def test_what_a_page_tries_is_told(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    async with box.http("s" * 43) as client:
        assert (await client.patch(f"/jobs/{JOB}", headers={"origin": "http://evil.example"})).status_code == 403
        assert (await client.get(f"/jobs/{JOB}/yarn-cancel", headers={"authorization": ""})).status_code == 403
    told = [(one["action"], one["outcome"], one["address"]) for one in box.lines()]
    assert told == [
        (f"PATCH /jobs/{JOB}", "refused", "10.1.2.3"),
        (f"GET /jobs/{JOB}/yarn-cancel", "refused", "10.1.2.3"),
    ]
    assert "evil.example" in box.lines()[0]["reason"]


@pytest.mark.asyncio
async def test_a_flood_of_refusals_is_counted(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    async with box.http("wrong") as client:
        for _ in range(REFUSALS_OF_ONE + 100):
            assert (await client.get("/overview")).status_code == 401
    assert len(box.lines()) == REFUSALS_OF_ONE
    async with box.http("s" * 43) as client:
        await client.patch(f"/jobs/{JOB}")
    assert [one["action"] for one in box.lines()[REFUSALS_OF_ONE:]] == ["sign-in", "cancel"], "what is done is told"
    box.clock.ahead = 61
    async with box.http("wrong") as client:
        await client.get("/overview")
    counted, refused = box.lines()[-2:]
    assert (counted["action"], counted["count"], refused["outcome"]) == ("refusals", 100, "refused")
    assert counted["address"] == "10.1.2.3"


@pytest.mark.asyncio
async def test_what_is_counted_is_told_though_nothing_else_happens(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.rest.access.audit._WINDOW_LOOK", 0.01)
    box = make(tmp_path)
    for _ in range(REFUSALS_OF_ONE + 5):
        box.audit.refuse("sign-in", principal="", address="10.0.0.1")
    running = asyncio.create_task(box.audit.run())
    await asyncio.sleep(0.1)
    assert len(box.lines()) == REFUSALS_OF_ONE
    box.clock.ahead = 61
    await eventually(lambda: len(box.lines()) > REFUSALS_OF_ONE, "it is told", 20.0)
    running.cancel()
    assert (box.lines()[-1]["address"], box.lines()[-1]["count"]) == ("10.0.0.1", 5)


@pytest.mark.asyncio
async def test_strangers_hide_no_refusal_of_who_is_known(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    for number in range(REFUSALS_MAX):
        box.audit.refuse("sign-in", principal="", address=f"10.0.0.{number}")
    for number in range(REFUSALS_MAX):
        box.audit.refuse("drain", principal=f"crowd-{number}", address="10.0.1.1")
    async with box.http("s" * 43) as client:
        for _ in range(REFUSALS_OF_ONE + 1):
            assert (await client.post("/taskmanagers/tm-1/drain")).status_code == 403
    assert len([one for one in box.lines("drain") if one["principal"] == "sam"]) == 1
    box.clock.ahead = 61
    box.audit.refuse("sign-in", principal="", address="10.0.0.1")
    assert [(one["principal"], one["count"]) for one in box.lines("refusals")] == [("sam", REFUSALS_OF_ONE)]


@pytest.mark.asyncio
async def test_who_repeats_himself_pushes_out_nothing(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    others = [f"{number:032x}" for number in range(2 * REFUSALS_OF_ONE)]
    async with box.http("s" * 43) as client:
        for _ in range(REFUSALS_OF_ONE + 100):
            assert (await client.patch(f"/jobs/{JOB}")).status_code == 202
        for other in others:
            box.fakes.dispatcher.put(JobId(other), JobStatus.RUNNING)
            shown = box.fakes.dispatcher.summaries[JobId(other)]
            box.fakes.dispatcher.summaries[JobId(other)] = replace(shown, submitter="sam", namespace="team-a")
            assert (await client.patch(f"/jobs/{other}")).status_code == 202
    assert [one["object"] for one in box.lines("cancel")] == [JOB] * (1 + REFUSALS_OF_ONE) + others, (
        "what is new is told"
    )
    box.clock.ahead = 61
    async with box.http("s" * 43) as client:
        await client.patch(f"/jobs/{JOB}")
    repeats = box.lines("repeats")
    assert [(one["principal"], one["outcome"], one["count"]) for one in repeats] == [("sam", "done", 99)]
    box.clock.ahead = REPEATED_SECONDS + 62
    box.audit.tell("cancel", "done", principal="sam", address="::1", object_=JOB)
    assert box.lines("cancel")[-1]["address"] == "::1", "after a while it is news again"


def test_each_token_that_is_made_is_told(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    for _ in range(3 * REFUSALS_OF_ONE):
        box.audit.tell("rotate-token", "done", principal="admin", address="::1", object_="sam")
    assert len(box.lines("rotate-token")) == 3 * REFUSALS_OF_ONE


@pytest.mark.asyncio
async def test_many_addresses_flood_it_no_more_than_one(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    for number in range(1000):
        box.audit.refuse("sign-in", principal="", address=f"10.0.{number // 250}.{number % 250}")
    assert len(box.lines()) == 200
    assert len(box.audit._strangers.untold) == 1, "nor its memory"
    box.audit.close()
    assert box.lines()[-1]["count"] == 800


@pytest.mark.asyncio
async def test_failures_of_somebody_who_may_are_counted(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    async with box.http("s" * 43) as client:
        for _ in range(REFUSALS_OF_ONE + 100):
            assert (await client.patch("/jobs/" + "\N{GRINNING FACE}" * 256)).status_code == 400
    async with box.http("a" * 43) as client:
        await client.post("/jobmasters/nobody/drain")
    told = [one["principal"] for one in box.lines("cancel", "drain")]
    assert told == ["sam"] * REFUSALS_OF_ONE + ["admin"], "others are not concerned"
    box.clock.ahead = 61
    box.audit.tell("cancel", "done", principal="sam", address="::1")
    (counted,) = box.lines("failures")
    assert (counted["outcome"], counted["count"]) == ("failed", 100)


@pytest.mark.asyncio
async def test_a_viewer_is_refused_before_anything_is_looked_for(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    async with box.http("v" * 43) as client:
        for path in ("/jobs/" + "\N{GRINNING FACE}" * 256, f"/jobs/{'d' * 32}"):
            assert (await client.patch(path)).status_code == 403
    assert [one["outcome"] for one in box.lines("cancel")] == ["refused"] * 2
    assert all(len(line) < 1000 for line in box.path.read_text(encoding="ascii").splitlines())


@pytest.mark.asyncio
async def test_who_looks_for_jobs_of_others_is_told(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    theirs, unknown = JobId("b" * 32), JobId("c" * 32)
    box.fakes.dispatcher.put(theirs, JobStatus.RUNNING)
    shown = box.fakes.dispatcher.summaries[theirs]
    box.fakes.dispatcher.summaries[theirs] = replace(shown, submitter="bea", namespace="team-b")
    async with box.http("s" * 43) as client:
        for job_id in (theirs, unknown):
            answers = [await client.get(f"/v1/jobs/{job_id}/status"), await client.patch(f"/jobs/{job_id}")]
            assert {(one.status_code, one.text) for one in answers} == {
                (404, f'{{"errors":["Job {job_id} not found"]}}')
            }, "both are answered in the same words"
        assert (await client.post("/jobs/wait", json={"ids": [JOB, theirs, unknown]})).status_code == 200
    told = [(one["action"], one["outcome"], one["object"], one["reason"]) for one in box.lines() if "reason" in one]
    reason = f"job {theirs} is of the namespace team-b, sam sees team-a only"
    assert told == [
        (f"GET /v1/jobs/{theirs}/status", "refused", theirs, reason),
        ("cancel", "refused", theirs, reason),
        ("cancel", "failed", unknown, f"Job {unknown} not found"),
        ("POST /jobs/wait", "refused", theirs, reason),
    ]
    async with box.http("s" * 43) as client:
        for _ in range(2 * REFUSALS_OF_ONE):
            await client.get(f"/jobs/{theirs}")
    assert len([one for one in box.lines() if one["outcome"] == "refused"]) == REFUSALS_OF_ONE, "bounded as others are"


@pytest.mark.asyncio
async def test_a_submit_is_told_with_its_namespace(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    submission = {"job_id": "e" * 32, "job_graph": lone().model_dump(mode="json")}
    async with box.http("s" * 43) as client:
        assert (await client.post("/jobs", json=submission)).status_code == 202
    async with box.http("a" * 43) as client:
        body = submission | {"job_id": "f" * 32, "options": {"namespace": "team-b"}}
        assert (await client.post("/jobs", json=body)).status_code == 202
    assert [(one["principal"], one["namespace"]) for one in box.lines("submit")] == [
        ("sam", "team-a"),
        ("admin", "team-b"),
    ]


@pytest.mark.asyncio
async def test_who_may_make_no_token_is_told_with_what_he_tried(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    async with box.http("s" * 43) as client:
        for body in (b'{"name": "z", "role": "admin"}', b"[]"):
            assert (await client.post("/tokens", content=body)).status_code == 403
    told = [(one["outcome"], one["object"], one.get("granted_role")) for one in box.lines("create-token")]
    assert told == [("refused", "z", "admin"), ("refused", "", None)]


@pytest.mark.asyncio
@pytest.mark.parametrize("text", ["\N{GRINNING FACE}" * 300, '"\\' * 300, "\x1b" * 300, "x" * 300])
async def test_text_is_bounded_as_it_is_written(make: Make, tmp_path: Path, text: str) -> None:
    box = make(tmp_path)
    box.audit.tell("cancel", "done", principal="sam", address="::1", object_=text)
    (line,) = box.lines()
    assert 240 < len(json.dumps(line["object"])) - 2 <= 256
    assert line["object"].startswith(text[:1] if text.isprintable() else "\\x1b")


@pytest.mark.asyncio
async def test_promises_are_told_that_end_a_job_of_others_or_at_once(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    path, later = f"/jobs/{JOB}/clientHeartbeat", box.clock.epoch_millis() + 3_600_000
    for token, until in (("s", later), ("s", 0), ("s", 1), ("a", later)):
        async with box.http(token * 43) as client:
            assert (await client.patch(path, json={"expiredTimestamp": until})).status_code == 202
    told = [(one["principal"], one["object"], one["until"]) for one in box.lines("promise")]
    assert told == [("sam", JOB, 1), ("admin", JOB, later)], "a client's own, every few seconds, are not"


@pytest.mark.asyncio
async def test_its_files_are_bounded(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path, size_max=10_000)
    for number in range(1000):
        box.audit.tell("submit", "done", principal="sam", address="::1", object_=f"{number:032x}")
    files = sorted(box.path.parent.iterdir())
    assert [one.name for one in files] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(one.stat().st_size <= 10_000 for one in files)
    assert box.lines()[-1]["object"] == f"{999:032x}"


def test_who_signs_in_is_told_once_in_a_while(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path)
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1"):
        box.audit.sign_in("sam", "token", address)
    assert [one["address"] for one in box.lines()] == ["10.0.0.1", "10.0.0.2"]
    box.clock.ahead = SIGN_IN_SECONDS - 1
    box.audit.sign_in("sam", "token", "10.0.0.1")
    box.clock.ahead = 2 * SIGN_IN_SECONDS - 2
    box.audit.sign_in("sam", "token", "10.0.0.1")
    assert len(box.lines()) == 2, "it was never silent for so long"
    box.audit.sign_in("sam", "token", "10.0.0.2")
    assert len(box.lines()) == 3


def test_a_log_that_cannot_be_written_stops_nothing(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = make(tmp_path)
    box.path.parent.write_text("no directory")
    box.audit.tell("cancel", "done", principal="sam", address="::1", object_=JOB)
    assert "cannot be written" in caplog.text
    assert JOB in caplog.text


# --- limits -----------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_who_asks_too_often_is_told_when_to_come_back(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path, LimitSettings(requests_per_second=2, running_max=100))
    async with box.http("s" * 43) as client:
        statuses = [(await client.get("/overview")).status_code for _ in range(10)]
        assert statuses == [200] * 10, "a burst"
        refused = [await client.get("/overview") for _ in range(5)][-1]
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "sam asks more than 2 times a second" in refused.text
    async with box.http("a" * 43) as client:
        assert (await client.get("/overview")).status_code == 200, "others are not concerned"
    box.clock.ahead = 1.0
    async with box.http("s" * 43) as client:
        assert (await client.get("/overview")).status_code == 200


@pytest.mark.asyncio
async def test_who_polls_too_much_at_once_is_refused_and_others_are_not(make: Make, tmp_path: Path) -> None:
    box = make(tmp_path, LimitSettings(requests_per_second=1000, running_max=3))
    async with box.http("s" * 43) as client, box.http("a" * 43) as admin:
        modified = box.fakes.dispatcher.summaries[JOB].last_modification_millis
        poll = {"wait": "5", "since": str(modified)}
        polls = [asyncio.create_task(client.get(f"/jobs/{JOB}/status", params=poll)) for _ in range(3)]
        async with asyncio.timeout(10):
            while box.fakes.dispatcher.polls < 3:
                await asyncio.sleep(0.01)
        refused = await client.get("/overview")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "3 requests that are not answered yet" in refused.text
        assert (await admin.get("/overview")).status_code == 200
        box.fakes.dispatcher.put(JOB, JobStatus.FINISHED, 5000)
        shown = box.fakes.dispatcher.summaries[JOB]
        box.fakes.dispatcher.summaries[JOB] = replace(shown, submitter="sam", namespace="team-a")
        await asyncio.gather(*polls)
        assert (await client.get("/overview")).status_code == 200


def test_no_number_of_principals_takes_all_places() -> None:
    """Each may have half of what others leave, and has it again when it was answered."""
    limits = PrincipalLimits(LimitSettings(1_000_000, 1_000_000, places_max=96), SteppedClock())

    def take_all(principal: str) -> int:
        taken = 0
        with pytest.raises(BackpressureError, match="come back later"):  # noqa: PT012
            while True:
                limits.begin(principal)
                taken += 1
        return taken

    assert [take_all(one) for one in ("sam", "sue", "eve", "bob")] == [48, 24, 12, 6]
    for _ in range(48):
        limits.end("sam")
    assert take_all("eve") == 21, "half of 96 - 24 - 6, of which it has 12"
    assert take_all("ann") == 16


def test_principals_that_are_not_heard_of_are_forgotten() -> None:
    clock = SteppedClock()
    limits = PrincipalLimits(LimitSettings(1, 10), clock)
    for number in range(10_000):
        limits.begin(str(number))
        limits.end(str(number))
    clock.ahead = 10
    limits.begin("sam")
    limits.begin("sue")
    assert len(limits._budgets) <= 2
    for _ in range(4):
        limits.begin("sam")
    with pytest.raises(BackpressureError):
        limits.begin("sam")

"""R54: programs are uploaded once, seen by their namespace, and run without any of their code in the JobManager."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from starlette.types import Scope

from runtime.aio.blocking import BlockingIo
from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.blob.directory import open_directory
from runtime.blob.retention import REFERENCE_MILLIS
from runtime.blob.server import BlobServer
from runtime.blob.store import BlobStore, BlobStoreSettings
from runtime.common.ids import JobId
from runtime.common.shares import QueuePolicy, QueueSettings
from runtime.common.states import JobStatus
from runtime.entrypoint.storage import RestBlobs
from runtime.highavailability.jars import JarStore
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.record_codec import UnreadableRecordError
from runtime.jobgraph.graph import JarCode, JobGraph, ScriptCode
from runtime.jobgraph.parsing import parse_job_graph
from runtime.jobgraph.savepoints import ClaimMode, SavepointRestoreSettings
from runtime.rest.access.sign_in import bearer_of
from runtime.rest.app import create_app
from runtime.rest.context import LeaderComponents
from runtime.rest.uploads.known_scripts import KnownScripts
from runtime.rest.uploads.zip_directory import Member, ReadRange, read_members
from runtime.security.principals import ADMIN, Principal, Role
from tests.kit.control_plane.job_graphs import lone
from tests.kit.control_plane.streaming_jobs import streaming_job
from tests.kit.rest.fakes import RestFakes
from tests.kit.rest.server import ObedientDispatcher

pytestmark = pytest.mark.asyncio

JOB = JobId("7" * 32)
KEYS = Keys.of_cluster("test")
PEOPLE = {
    "viewer": Principal("vera", Role.VIEWER, "team-a"),
    "sam": Principal("sam", Role.SUBMITTER, "team-a"),
    "tom": Principal("tom", Role.SUBMITTER, "team-a"),
    "bea": Principal("bea", Role.SUBMITTER, "team-b"),
    "olga": Principal("olga", Role.OPERATOR, "team-a"),
    "admin": ADMIN,
}
Connect = Callable[[str], AbstractAsyncContextManager[httpx.AsyncClient]]


def zipped(members: dict[str, str], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, text in members.items():
            # Always the same bytes: they are in the names of tests.
            archive.writestr(zipfile.ZipInfo(name), text, method)
    return made.getvalue()


class SteppedClock(LoopClock):
    """Real, and moved by hand."""

    ahead = 0

    def epoch_millis(self) -> int:
        return super().epoch_millis() + self.ahead


class World:
    """The real stores, below the routes of one leader after the other."""

    def __init__(self, root: Path) -> None:
        self.clock = SteppedClock()
        self.kv = MemoryKeyValueStore(self.clock)
        self.io = BlockingIo()
        settings = BlobStoreSettings(object_bytes_max=1 << 20)
        self.blobs = BlobStore(open_directory(root.as_uri()), settings, self.io, self.clock, SystemEntropy())
        self.fakes = RestFakes()

    @property
    def jars(self) -> JarStore:
        return JarStore(self.kv, KEYS, SystemEntropy(), timeout=5)

    def connect(self, *, long_poll_max: float = 5.0) -> Connect:
        """To another leader, over the same stores."""
        fakes, served = self.fakes, RestBlobs(BlobServer(self.blobs))
        components = LeaderComponents(fakes.dispatcher, fakes.resource_manager, served, self.jars, "jm-1:8081")
        context = replace(fakes.context(), leader=lambda: components, clock=self.clock, long_poll_max=long_poll_max)
        app = create_app(context, sign_in=_sign_in, content_length_max=1 << 20, hosts={"test"})

        @asynccontextmanager
        async def connect(who: str) -> AsyncIterator[httpx.AsyncClient]:
            transport = httpx.ASGITransport(app=app)
            headers = {"authorization": f"Bearer {who}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
                yield client

        return connect

    def submitted(self) -> JobGraph:
        return parse_job_graph(self.fakes.dispatcher.submitted[-1].graph)


def _sign_in(scope: Scope) -> Principal | None:
    return PEOPLE.get(bearer_of(scope))


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.kv.close()
    made.io.close()


async def upload(connect: Connect, name: str, data: bytes, who: str = "sam") -> str:
    async with connect(who) as http:
        answer = await http.post("/jars/upload", files={"jarfile": (name, data)})
        assert answer.status_code == 200, answer.text
        assert answer.json()["status"] == "success"
        return str(answer.json()["filename"].rpartition("/")[2])


async def test_a_script_is_uploaded_listed_run_and_deleted(world: World) -> None:
    connect = world.connect()
    jar = await upload(connect, "etl.py", b"print(1)\n")
    async with connect("sam") as http:
        (file,) = (await http.get("/v1/jars")).json()["files"]
        assert (file["id"], file["name"], file["entry"]) == (jar, "etl.py", [{"name": "etl.py", "description": None}])
        assert (file["namespace"], file["uploader"], file["size"]) == ("team-a", "sam", 9)
        body = {"programArgs": "--day '2026 11'", "jobId": JOB, "flinkConfiguration": {"spark.a": "1"}}
        ran = await http.post(f"/jars/{jar}/run", json=body)
        assert (ran.status_code, ran.json()) == (200, {"jobid": JOB, "applicationId": JOB})
        again = await http.post(f"/jars/{jar}/run", json=body)
        assert again.status_code == 200
        graph = world.submitted()
        code = graph.vertices[0].operators[0].code
        assert isinstance(code, ScriptCode)
        assert (code.args, code.script.name, graph.name) == (("--day", "2026 11"), "etl.py", "etl.py")
        assert graph.spark_conf == {"spark.a": "1"}
        request = world.fakes.dispatcher.submitted[-1]
        assert (request.submitter, request.namespace) == ("sam", "team-a")
        (node,) = (await http.get(f"/jars/{jar}/plan")).json()["plan"]["nodes"]
        assert (node["parallelism"], node["description"]) == (1, "etl.py")
        assert (await http.delete(f"/jars/{jar}")).json() == {}
        assert (await http.get("/jars")).json()["files"] == []
        assert (await http.post(f"/jars/{jar}/run")).status_code == 404


async def test_a_run_waits_in_the_queue_that_it_names(world: World) -> None:
    world.fakes.queues = QueuePolicy({"etl": QueueSettings(namespaces=("team-a",)), "reports": QueueSettings()})
    connect = world.connect()
    jar = await upload(connect, "etl.py", b"print(1)\n")
    async with connect("sam") as http:
        wanted: list[dict[str, object]] = [{}, {"queue": "etl", "priority": -7}, {"queue": None, "priority": None}]
        for number, body in enumerate(wanted):
            ran = await http.post(f"/jars/{jar}/run", json={"jobId": f"{number:032x}", **body})
            assert ran.status_code == 200, ran.text
        asked = [(one.queue, one.priority) for one in world.fakes.dispatcher.submitted]
        assert asked == [("sam", 0), ("etl", -7), ("sam", 0)]
        refused = await http.post(f"/jars/{jar}/run", json={"queue": "reports"})
        assert (refused.status_code, "slotmanager.queue.reports.namespaces has team-a" in refused.text) == (403, True)
        for wrong in ({"queue": "a b"}, {"queue": "a" * 128}, {"priority": 1 << 31}, {"priority": "7"}):
            assert (await http.post(f"/jars/{jar}/run", json=wrong)).status_code == 400
        in_query = await http.post(f"/jars/{jar}/run?queue=etl")
        assert (in_query.status_code, "queue: name it in the body" in in_query.text) == (400, True)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
async def test_a_script_of_an_archive_has_the_archive_on_its_path(world: World, method: int) -> None:
    connect = world.connect()
    members = {"jobs/etl.py": "import lib\n", "lib.py": "x = 1\n", "lib/__init__.py": ""}
    jar = await upload(connect, "jobs-1.0.zip", b"#!/bin/sh\n" + zipped(members, method=method))
    async with connect("sam") as http:
        ran = await http.post(f"/jars/{jar}/run", json={"entryClass": "jobs/etl.py", "programArgsList": ["a b"]})
        assert ran.status_code == 200, ran.text
        graph = world.submitted()
        code = graph.vertices[0].operators[0].code
        assert isinstance(code, ScriptCode)
        assert (code.script.name, code.script.inline_bytes()) == ("etl.py", b"import lib\n")
        assert [one.name for one in graph.py_files] == ["jobs-1.0.zip"]
        assert graph.py_files[0].key
        unnamed = await http.post(f"/jars/{jar}/run")
        assert unnamed.status_code == 400
        assert "name one in entryClass (lib.py, jobs/etl.py)" in unnamed.json()["errors"][0]
        absent = await http.post(f"/jars/{jar}/run", json={"entryClass": "no.py"})
        assert "has no such script" in absent.json()["errors"][0]


async def test_a_jar_runs_the_main_class_of_its_manifest(world: World) -> None:
    connect = world.connect()
    manifest = "Manifest-Version: 1.0\r\nMain-Class: com.example.Nightly\r\n"
    jar = await upload(connect, "app.jar", zipped({"META-INF/MANIFEST.MF": manifest}))
    async with connect("sam") as http:
        assert (await http.get("/jars")).json()["files"][0]["entry"][0]["name"] == "com.example.Nightly"
        assert (await http.post(f"/jars/{jar}/run")).status_code == 200
        graph = world.submitted()
        code = graph.vertices[0].operators[0].code
        assert isinstance(code, JarCode)
        assert (code.main_class, graph.name) == ("com.example.Nightly", "Nightly")


async def test_the_graph_of_a_pipeline_comes_from_a_job(world: World) -> None:
    """R54: the JobManager imports nothing of it. What the job has written is checked like a submit."""
    dispatcher = ObedientDispatcher()
    world.fakes.dispatcher = dispatcher
    connect = world.connect(long_poll_max=0.0)
    jar = await upload(connect, "lib.zip", zipped({"flows.py": "raise SystemExit"}))
    body = {"entryClass": "flows:pipeline", "jobId": JOB, "programArgs": "day=3", "parallelism": 2}
    async with connect("sam") as http:
        dispatcher.next_status = JobStatus.RUNNING
        waits = await http.post(f"/jars/{jar}/run", json=body)
        assert waits.status_code == 503
        assert f'"jobId": "{JOB}"' in waits.json()["errors"][0]
        (planning,) = dispatcher.submitted
        asked = parse_job_graph(planning.graph)
        assert asked.params == {"entry": "flows:pipeline", "args": ["day=3"], "parallelism": 2}
        assert (planning.submitter, planning.namespace) == ("sam", "team-a")

        built = lone().model_copy(update={"name": "daily"})
        value = {"graph": built.document(), "warnings": ["no parameter dya\x1b", 3, *["x" * 600] * 30]}
        dispatcher.set_result(planning.job_id, json.dumps(value))
        ran = await http.post(f"/jars/{jar}/run", json=body)
        assert ran.status_code == 200, ran.text
        assert ran.json()["warnings"] == ["no parameter dya\\x1b", *["x" * 500] * 19]
        assert "warnings" not in (await http.post(f"/jars/{jar}/run", json=body)).json(), "of a repeat"
        graph = world.submitted()
        assert (graph.name, [one.name for one in graph.py_files]) == ("daily", ["lib.zip"])
        assert dispatcher.submitted[-1].job_id == JOB

        del dispatcher.summaries[JOB]  # else a repeat looks at no plan
        for result in (
            '{"name": 1}',
            "[]",
            '{"warnings": []}',
            '{"warnings": [], "graph": {"name": 1}}',
            "[" * 100_000,
        ):
            dispatcher.set_result(planning.job_id, result)
            refused = await http.post(f"/jars/{jar}/run", json=body)
            assert refused.status_code == 400, result
        summary = dispatcher.summaries[planning.job_id]
        dispatcher.summaries[planning.job_id] = replace(summary, submitter="eve")
        foreign = await http.post(f"/jars/{jar}/run", json=body)
        assert (foreign.status_code, "is of somebody else" in foreign.text) == (409, True)
        dispatcher.put(planning.job_id, JobStatus.FAILED)
        failed = await http.post(f"/jars/{jar}/run", json=body)
        assert "cannot be built: ValueError: no such column" in failed.json()["errors"][0]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.exe", b"x", "ends in .py, .zip"),
        (".py", b"x", "begins with a letter"),
        ("a b.py", b"x", "letters, digits"),
        ("a.py", b"", "is empty"),
        ("a.zip", b"no zip", "no directory"),
        ("a.whl", zipped({"a.py": "1"})[:-30], "no directory"),
        ("a.zip", zipped({"a.py": "1"})[10:], "outside of it"),
        ("x" * 200 + ".py", b"x", "up to 128"),
    ],
)
async def test_what_is_no_program_is_refused(world: World, name: str, data: bytes, says: str) -> None:
    async with world.connect()("sam") as http:
        answer = await http.post("/jars/upload", files={"jarfile": (name, data)})
        assert answer.status_code == 400
        assert says in answer.json()["errors"][0]
        assert (await http.get("/jars")).json()["files"] == []


async def test_the_names_of_what_may_be_run_are_bounded(world: World) -> None:
    names = {f"{number:02d}{'n' * 240}.py": "1" for number in range(50)}
    await upload(world.connect(), "many.zip", zipped(names))
    async with world.connect()("sam") as http:
        listed = (await http.get("/jars")).json()["files"][0]["entry"]
    assert 10 < len(listed) < 20


async def test_too_large_programs_are_refused(world: World) -> None:
    async with world.connect()("sam") as http:
        answer = await http.post("/jars/upload", files={"jarfile": ("a.py", bytes(2 << 20))})
        assert answer.status_code == 413


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"--x\r\n"),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/form-data; boundary=x", b"--x--\r\n"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n'),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; filename="a.py"\r\n\r\n1'),
        ("multipart/form-data; boundary=x", b"y" * 200_000),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\n\r\n\r\n" * 20_000
            + b'--x\r\nContent-Disposition: form-data; filename="a.py"\r\n\r\n1\r\n--x--\r\n',
        ),
    ],
)
async def test_bodies_without_a_file_are_refused(world: World, kind: str, body: bytes) -> None:
    async with world.connect()("sam") as http:
        answer = await http.post("/jars/upload", content=body, headers={"content-type": kind})
        assert answer.status_code == 400, answer.text
        assert answer.json()["errors"][0]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"savepointPath": "/s"}, "etl.py is one task, whose queries the cluster does not know"),
        ({"savepointPath": "/s" * 3000}, "6000 characters, the limit is 4096"),
        ({"savepointPath": "/s", "claimMode": "LEGACY"}, "claim mode 'LEGACY' is none of NO_CLAIM, CLAIM"),
        ({"parallelism": 4}, "is one task"),
        ({"entryClass": "com.example.Main"}, "is a script"),
        ({"flinkConfiguration": {"state.backend": "x"}}, "state.backend"),
        ({"flinkConfiguration": {"parallelism.default": "x"}}, "no positive number"),
        ({"flinkConfiguration": {"parallelism.default": "\u00b2"}}, "no positive number"),
        (
            {"programArgs": "'"},
            "the arguments (programArgs) cannot be split as a shell splits them: no closing quotation",
        ),
        ({"more": 1}, "unknown field"),
        ({"jobId": "x"}, "'x'"),
    ],
)
async def test_wishes_without_an_effect_are_refused(world: World, body: dict[str, object], says: str) -> None:
    connect = world.connect()
    jar = await upload(connect, "etl.py", b"1")
    async with connect("sam") as http:
        answer = await http.post(f"/jars/{jar}/run", json=body)
        assert answer.status_code == 400
        assert says in answer.text
        assert world.fakes.dispatcher.submitted == []


@pytest.mark.parametrize("is_in_query", [False, True])
async def test_a_pipeline_is_started_from_a_savepoint(world: World, *, is_in_query: bool) -> None:
    dispatcher = ObedientDispatcher()
    world.fakes.dispatcher = dispatcher
    connect = world.connect(long_poll_max=0.0)
    jar = await upload(connect, "lib.zip", zipped({"flows.py": "raise SystemExit"}))
    asked = {"savepointPath": "file:/savepoints/1", "allowNonRestoredState": True}
    body = {"entryClass": "flows:pipeline", "jobId": JOB, "claimMode": "CLAIM", **({} if is_in_query else asked)}
    query = {"savepointPath": "file:/savepoints/1", "allowNonRestoredState": "true"} if is_in_query else {}
    settings = SavepointRestoreSettings(
        path="file:/savepoints/1", allow_non_restored_state=True, claim_mode=ClaimMode.CLAIM
    )
    async with connect("sam") as http:
        dispatcher.next_status = JobStatus.RUNNING
        await http.post(f"/jars/{jar}/run", json=body, params=query)
        (planning,) = dispatcher.submitted
        for built, code in ((streaming_job("orders"), 200), (lone(), 400)):
            value = {"graph": built.document(), "warnings": []}
            dispatcher.set_result(planning.job_id, json.dumps(value))
            dispatcher.summaries.pop(JOB, None)
            ran = await http.post(f"/jars/{jar}/run", json=body, params=query)
            assert ran.status_code == code, ran.text
            if code == 200:
                assert world.submitted().savepoint == settings
            else:
                assert "the job has no streaming query" in ran.text


async def test_what_flinks_dashboard_sends_is_taken(world: World) -> None:
    """It writes the arguments into three places, one of them named after savepoints."""
    connect = world.connect()
    jar = await upload(connect, "etl.py", b"1")
    body = {
        "entryClass": None, "parallelism": None, "programArgs": "a b", "savepointPath": None,
        "allowNonRestoredState": None,
    }  # fmt: skip
    async with connect("sam") as http:
        ran = await http.post(f"/jars/{jar}/run?program-args=a%20b&savepointPath=a%20b", json=body)
        assert ran.status_code == 200, ran.text
        code = world.submitted().vertices[0].operators[0].code
        assert isinstance(code, ScriptCode)
        assert code.args == ("a", "b")


async def test_a_program_is_of_its_namespace_and_deleted_by_whoever_may(world: World) -> None:
    connect = world.connect()
    jar = await upload(connect, "etl.py", b"1")
    seen = {}
    for who in PEOPLE:
        async with connect(who) as http:
            files = (await http.get("/jars")).json()["files"]
            ran = await http.post(f"/jars/{jar}/run")
            seen[who] = (len(files), ran.status_code)
    assert seen == {
        "viewer": (1, 403), "sam": (1, 200), "tom": (1, 200), "bea": (0, 404), "olga": (1, 200), "admin": (1, 200),
    }  # fmt: skip
    assert {one.namespace for one in world.fakes.dispatcher.submitted} == {"team-a"}
    deleted = {}
    for who in ("viewer", "tom", "bea", "olga"):
        async with connect(who) as http:
            deleted[who] = (await http.delete(f"/jars/{jar}")).status_code
    assert deleted == {"viewer": 403, "tom": 403, "bea": 404, "olga": 200}


async def test_the_next_leader_has_the_same_programs(world: World) -> None:
    """R54: nothing of them is in the memory of a leader."""
    jar = await upload(world.connect(), "etl.py", b"print(1)")
    async with world.connect()("sam") as http:
        assert [one["id"] for one in (await http.get("/jars")).json()["files"]] == [jar]
        assert (await http.post(f"/jars/{jar}/run")).status_code == 200


async def test_a_program_is_kept_and_run_when_it_is_old(world: World) -> None:
    """R19, R54: its object is referred to while it is listed; an old one is copied for a new job."""
    connect = world.connect()
    jar = await upload(connect, "etl.py", b"print(1)")
    world.clock.ahead = 3 * REFERENCE_MILLIS
    assert await world.blobs.collect(world.jars.object_keys) == 0
    async with connect("sam") as http:
        assert (await http.post(f"/jars/{jar}/run")).status_code == 200
        code = world.submitted().vertices[0].operators[0].code
        assert isinstance(code, ScriptCode)
        assert code.script.sha256 == hashlib.sha256(b"print(1)").hexdigest()
        assert await world.blobs.not_referable([code.script.key or ""]) == []
        assert (await http.delete(f"/jars/{jar}")).status_code == 200
    assert await world.blobs.collect(world.jars.object_keys) == 1


async def test_an_unreadable_record_stops_the_collection_and_can_be_deleted(world: World) -> None:
    await world.kv.txn(Txn((), (Put(KEYS.jar("broken"), b"?"),)), timeout=5)
    with pytest.raises(UnreadableRecordError):
        await world.jars.object_keys()
    connect = world.connect()
    async with connect("sam") as http:
        assert (await http.get("/jars")).json()["files"] == []
    async with connect("admin") as http:
        (file,) = (await http.get("/jars")).json()["files"]
        assert file["problem"]
        assert (await http.post("/jars/broken/run")).status_code == 400
        assert (await http.delete("/jars/broken")).status_code == 200
    assert await world.jars.object_keys() == frozenset()


async def test_a_script_that_unpacks_to_too_much_is_refused(world: World) -> None:
    """R52: what an archive says of itself bounds what is made of it."""
    connect = world.connect()
    jar = await upload(connect, "big.zip", zipped({"etl.py": " " * (5 << 20)}))
    async with connect("sam") as http:
        answer = await http.post(f"/jars/{jar}/run", json={"entryClass": "etl.py"})
        assert answer.status_code == 400
        assert "at most 4194304" in answer.json()["errors"][0]


async def test_a_repeated_run_is_the_same_job_as_long_as_the_job_is_known(world: World) -> None:
    """R54: whatever becomes of the program and of the object with its bytes."""
    dispatcher = ObedientDispatcher()
    world.fakes.dispatcher = dispatcher
    connect = world.connect()
    jar = await upload(connect, "etl.py", b"print(1)")
    body = {"programArgs": "a", "jobId": JOB}

    async def run(which: str, **other: object) -> int:
        async with connect("sam") as http:
            return (await http.post(f"/jars/{which}/run", json={**body, **other})).status_code

    assert await run(jar) == 200
    again = await upload(connect, "etl.py", b"print(1)")  # anybody may: the newest object is that of new jobs
    assert [await run(jar), await run(again), await run(again, parallelism=1)] == [200, 200, 200]
    world.clock.ahead = 3 * REFERENCE_MILLIS
    assert [await run(jar), await run(again)] == [200, 200]
    other = await upload(connect, "etl.py", b"print(2)")
    taken = [await run(jar, programArgs="b"), await run(jar, flinkConfiguration={"spark.a": "1"}), await run(other)]
    assert taken == [409, 409, 409]
    async with connect("tom") as http:
        assert (await http.post(f"/jars/{jar}/run", json=body)).status_code == 403
        assert (await http.post(f"/jars/{'0' * 32}_etl.py/run", json=body)).status_code == 403
    async with connect("sam") as http:
        assert (await http.delete(f"/jars/{jar}")).status_code == 200
        assert (await http.post(f"/jars/{jar}/run-application", json={**body, "jobId": None})).status_code == 404
    assert [await run(jar), await run(jar, programArgs="b"), await run(again)] == [200, 404, 200]
    async with connect("sam") as http:
        for which in (again, other):
            assert (await http.delete(f"/jars/{which}")).status_code == 200
    assert [await run(jar), await run(again), await run(jar, programArgs="b")] == [200, 200, 404]
    assert [await run(other), await run(f"{'0' * 32}_etl.py")] == [404, 404]
    async with connect("tom") as http:
        assert (await http.post(f"/jars/{jar}/run", json=body)).status_code == 403
    anew = await upload(connect, "etl.py", b"print(1)")
    assert [await run(anew), await run(anew, programArgs="b")] == [200, 409]
    assert len(dispatcher.submitted) == 1, "no graph is made for a job that is there"


async def test_two_requests_at_once_are_one_job_though_its_graphs_differ(world: World) -> None:
    """R54: neither has seen the other's job, and a copy of the object was made in between."""
    connect = world.connect()
    jar = await upload(connect, "etl.py", b"print(1)")
    async with connect("sam") as http:
        assert (await http.post(f"/jars/{jar}/run", json={"jobId": JOB})).status_code == 200
        await upload(connect, "etl.py", b"print(1)")
        assert (await http.post(f"/jars/{jar}/run", json={"jobId": JOB})).status_code == 200
    first, second = world.fakes.dispatcher.submitted
    assert first.digest != second.digest
    assert first.program_run == second.program_run != ""


async def test_a_run_goes_on_with_the_plan_of_the_same_bytes(world: World) -> None:
    dispatcher = ObedientDispatcher()
    dispatcher.next_status = JobStatus.RUNNING
    world.fakes.dispatcher = dispatcher
    connect = world.connect(long_poll_max=0.0)
    data = zipped({"flows.py": "raise SystemExit"})
    body = {"entryClass": "flows:pipeline", "jobId": JOB}
    for _ in range(2):
        jar = await upload(connect, "lib.zip", data)
        async with connect("sam") as http:
            assert (await http.post(f"/jars/{jar}/run", json=body)).status_code == 503
    assert len({one.job_id for one in dispatcher.submitted}) == 1


async def test_an_archive_is_parsed_at_the_first_run_of_a_script(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = world.connect()
    members = {"etl.py": "print(1)\n", "big.py": f"print({'1' * 70_000})\n"}
    jar, other = [await upload(connect, name, zipped(members)) for name in ("jobs-1.0.zip", "jobs-1.1.zip")]
    parsed: list[int] = []

    async def counted(ranges: ReadRange, size_bytes: int) -> dict[str, Member]:
        parsed.append(size_bytes)
        return await read_members(ranges, size_bytes)

    monkeypatch.setattr("runtime.rest.uploads.library.read_members", counted)
    async with connect("sam") as http:
        for which in (jar, jar, other):  # of the same bytes
            for entry in members:
                assert (await http.post(f"/jars/{which}/run", json={"entryClass": entry})).status_code == 200
        code = world.submitted().vertices[0].operators[0].code
        assert isinstance(code, ScriptCode)
        assert code.script.key
        assert len(parsed) == len(members)
        assert (await http.post(f"/jars/{jar}/run", json={"entryClass": "no.py"})).status_code == 400


async def test_known_scripts_are_bounded() -> None:
    known = KnownScripts(bytes_max=10_000)
    for number in range(5):
        known.add("a", f"{number}.py", bytes(2000))
        assert known.get("a", "0.py") is not None, "it was asked for last"
    assert [known.get("a", f"{number}.py") is not None for number in range(5)] == [True, False, False, True, True]
    known.add("a", "huge.py", bytes(20_000))
    assert known.get("a", "huge.py") is None

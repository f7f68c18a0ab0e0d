"""The application of the plugin in Airflow's own API server, in this process: rights by DAG, proofs, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from airflow_flinklike.operators.adoption import TaskLife
from airflow_flinklike.task_instance.stored_job import STORE_KEY, StoredJob
from airflow_flinklike.views.plugin_views import external_views
from airflow_flinklike.views.task_jobs import REFERENCE_LENGTH_MAX, TaskJob, TaskPlace, proved
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.kit.airflow.connection import connection_json
from tests.kit.rest.server import TOKEN, RestThread

pytestmark = pytest.mark.slow

OWN = {"x-requested-with": "flinklike"}
STARTED = "1700000000.000000"
SALES = TaskPlace("sales.daily", "run-1", "load", -1)
MAPPED = TaskPlace("sales.daily", "run-1", "load", 3)
STAFF = TaskPlace("staff.pay", "run-1", "load", -1)

Ask = Callable[..., httpx.Response]


def life(place: TaskPlace) -> TaskLife:
    return TaskLife(place.dag_id, place.run_id, place.task_id, place.map_index, STARTED, 2)


def stored(place: TaskPlace, number: int = 1, conn_id: str = "flinklike_default") -> StoredJob:
    return StoredJob(life(place).job_id_of(number), 2, STARTED, conn_id)


# --- whose job it is ------------------------------------------------------------------------------------------


def test_a_job_is_of_the_task_that_its_id_says() -> None:
    found = proved(SALES, json.dumps(stored(SALES).to_json()))
    assert found is not None
    assert found.job.job_id == life(SALES).job_id_of(1)
    random = replace(stored(SALES, number=987654321), number=987654321)
    assert proved(SALES, random.to_json()) is not None
    cleared = replace(stored(SALES), max_tries=5)
    assert proved(SALES, cleared.to_json()) is not None, "of the life before a clear"


@pytest.mark.parametrize(
    "value",
    [
        stored(STAFF).to_json(),
        stored(MAPPED).to_json(),
        {**stored(STAFF).to_json(), "number": 1},
        {**stored(SALES).to_json(), "job_id": "f" * 32},
        {**stored(SALES).to_json(), "run_started": "1"},
        {**stored(SALES).to_json(), "max_tries": None},
        {**stored(SALES).to_json(), "conn_id": ""},
        "no JSON",
        None,
        [],
    ],
)
def test_a_task_cannot_store_the_job_of_another_as_its_own(value: Any) -> None:  # R56
    assert proved(SALES, value) is None


@pytest.mark.parametrize("place", [SALES, MAPPED, TaskPlace("ü/..", "manual__2026-01-01T00:00:00+00:00", "a b", 0)])
def test_a_reference_names_a_task_instance(place: TaskPlace) -> None:
    reference = place.reference()
    assert TaskPlace.of_reference(reference) == place
    assert reference.isascii()
    assert "/" not in reference


@pytest.mark.parametrize(
    "text", ["", "e30", "W10", "!!!", "a" * (REFERENCE_LENGTH_MAX + 1), "WzEsMiwzLDRd", "WyJhIiwiYiIsImMiLCJkIl0"]
)
def test_what_is_no_reference_names_none(text: str) -> None:
    assert TaskPlace.of_reference(text) is None


@pytest.mark.parametrize(
    ("base_url", "head"),
    [("", "/flinklike"), ("http://h:8080", "/flinklike"), ("https://h/airflow/", "/airflow/flinklike")],
)
def test_views_lead_below_the_path_of_airflow(base_url: str, head: str) -> None:
    assert all(one["href"].startswith(head + "/") for one in external_views(base_url))


# --- in Airflow's API server ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[RestThread]:
    with RestThread() as rest:
        for place in (SALES, STAFF):
            rest.put(stored(place).job_id, JobStatus.RUNNING)
        yield rest


@pytest.fixture(scope="module")
def server(cluster: RestThread, metadata_database: None) -> Iterator[Any]:
    """Airflow's application with the plugin, over the database with three task instances."""
    del metadata_database
    from airflow.api_fastapi.app import create_app, purge_cached_app
    from fastapi.testclient import TestClient

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__AUTH_MANAGER", "tests.kit.airflow.dag_rights.DagRights")
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s" * 64)
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
        patch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(cluster.address, token=TOKEN))
        patch.setenv("AIRFLOW_CONN_HTTP", json.dumps({"conn_type": "http", "host": cluster.address, "password": "s"}))
        fill()
        with TestClient(create_app(apps="core"), follow_redirects=False) as client:
            yield client
        purge_cached_app()


def fill() -> None:
    """Rows as Airflow and our operators write them."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.dagrun import DagRun
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunType

    with create_session() as session:
        if session.get(DagBundleModel, "views") is None:
            session.add(DagBundleModel(name="views"))
        session.flush()
        for dag_id in ("sales.daily", "sales.http", "staff.pay"):
            session.add(DagModel(dag_id=dag_id, bundle_name="views"))  # type: ignore[no-untyped-call]
            session.flush()
            run = DagRun(dag_id=dag_id, run_id="run-1", run_type=DagRunType.MANUAL)
            session.add(run)
            session.flush()
            place = TaskPlace(dag_id, "run-1", "load", -1)
            values = {place: stored(place, conn_id="http" if dag_id == "sales.http" else "flinklike_default")}
            if dag_id == "sales.daily":
                values[MAPPED] = stored(STAFF)  # a lie
            for at, value in values.items():
                session.add(
                    TaskStateStoreModel(
                        dag_run_id=run.id,
                        dag_id=at.dag_id,
                        run_id=at.run_id,
                        task_id=at.task_id,
                        map_index=at.map_index,
                        key=STORE_KEY,
                        value=json.dumps(value.to_json()),
                    )
                )


@pytest.fixture
def ask(server: Any) -> Ask:
    """A request of somebody."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    def send(person: str, path: str, method: str = "GET", **more: Any) -> httpx.Response:
        headers = dict(more.pop("headers", {}))
        if person:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=person, role="viewer"))
            headers["authorization"] = f"Bearer {token}"
        answer: httpx.Response = server.request(method, f"/flinklike/{path}", headers=headers, **more)
        assert TOKEN not in answer.text + str(answer.headers)
        return answer

    return send


def at(place: TaskPlace, rest: str = "", job: JobId | None = None) -> str:
    return f"ti/{place.reference()}/jobs/{job or stored(place).job_id}{rest}"


def test_a_list_has_the_jobs_of_readable_dags(ask: Ask) -> None:
    found = ask("reads-sales", "jobs/overview").json()
    assert [(one["jid"], one["task"]) for one in found["jobs"]] == [(stored(SALES).job_id, "sales.daily.load")]
    assert found["problems"] == ["Airflow's connection http is of type http: the pages of jobs take flinklike only"]
    assert [one["task"] for one in ask("reads-staff", "jobs/overview").json()["jobs"]] == ["staff.pay.load"]
    assert ask("reads-nothing", "jobs/overview").json()["jobs"] == []
    assert ask("reads-sales", "jobs/overview?state=FINISHED").json()["total"] == 0
    assert ask("reads-sales", "jobs/overview?name=DAILY&limit=1&sort=longest").json()["total"] == 1
    assert ask("reads-sales", "jobs/overview?limit=1000").status_code == 422


def test_a_look_asks_about_all_dags_with_jobs_at_once(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights of each DAG were asked for by themselves, of all DAGs, every few seconds for each open page."""
    from airflow_flinklike.views import rights
    from tests.kit.airflow.dag_rights import DagRights

    batches: list[list[str]] = []
    each: list[str] = []
    real_batch, real_each = DagRights.batch_is_authorized_dag, rights._of

    def batch(self: Any, requests: Sequence[Any], *, user: Any) -> bool:
        batches.append([one["details"].id for one in requests])
        return real_batch(self, requests, user=user)

    def one_by_one(request: Any, user: Any, dag_ids: Iterable[str]) -> Iterable[str]:
        each.extend(dag_ids)
        return real_each(request, user, dag_ids)

    monkeypatch.setattr(DagRights, "batch_is_authorized_dag", batch)
    monkeypatch.setattr(rights, "_of", one_by_one)
    ask("reads-sales", "jobs/overview")
    assert (batches, each) == ([["sales.daily", "sales.http"]], [])
    found = ask("daily-sales", "jobs/overview").json()
    assert [one["task"] for one in found["jobs"]] == ["sales.daily.load"]
    assert found["problems"] == []
    assert each == ["sales.daily", "sales.http"]


def test_a_list_names_the_connections_that_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_flinklike.views import job_lists

    jobs = [TaskJob(SALES, stored(SALES, conn_id=f"cluster-{number}")) for number in range(27)]
    monkeypatch.setattr(job_lists, "latest", lambda dag_ids, limit: jobs)
    monkeypatch.setattr(job_lists, "_of_cluster", lambda conn_id, found: ([], ""))
    (problem,) = job_lists.list_jobs({"sales.daily"}, job_lists.ListQuery())["problems"]
    assert "cluster-20, cluster-21, cluster-22, cluster-23, cluster-24 and 2 more are not in this list" in problem
    assert "cluster-19" not in problem


@pytest.mark.parametrize(
    "rest", ["", "/attempts", "/config", "/exceptions", "/execution-result", "/plan", "/accumulators", "/spark"]
)
def test_a_job_is_for_readers_of_its_dag(ask: Ask, rest: str) -> None:
    assert ask("reads-sales", at(SALES, rest)).status_code == 200
    assert ask("reads-staff", at(SALES, rest)).status_code == 403
    assert ask("", at(SALES, rest)).status_code == 401
    assert ask("reads-sales", at(STAFF, rest)).status_code == 403
    # By the name of a task of one's own.
    assert ask("reads-sales", at(SALES, rest, stored(STAFF).job_id)).status_code == 404
    assert ask("reads-sales", at(MAPPED, rest, stored(STAFF).job_id)).status_code == 404


def test_only_editors_cancel(ask: Ask, cluster: RestThread) -> None:
    assert ask("reads-sales", at(SALES)).json()["may-cancel"] is False
    assert ask("edits-sales", at(SALES)).json()["may-cancel"] is True
    refusals = [
        ("reads-sales", at(SALES), OWN, 403),
        ("edits-staff", at(SALES), OWN, 403),
        ("edits-sales", at(SALES), {}, 403),
        ("edits-sales", at(SALES), {**OWN, "sec-fetch-site": "cross-site"}, 403),
        ("edits-sales", at(SALES) + "?mode=drain", OWN, 400),
        ("", at(SALES), OWN, 401),
    ]
    for person, path, headers, status in refusals:
        assert ask(person, path, "PATCH", headers=headers).status_code == status, (person, path)
    assert cluster.dispatcher.cancelled == []
    assert ask("edits-sales", at(SALES), "PATCH", headers=OWN).status_code == 202
    assert cluster.dispatcher.cancelled == [stored(SALES).job_id]


def test_a_cancel_that_airflow_cannot_note_is_one(
    ask: Ask, cluster: RestThread, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow.models.log import Log
    from sqlalchemy import event
    from sqlalchemy.exc import OperationalError

    def refuse(*_: object) -> None:
        statement = "INSERT"
        raise OperationalError(statement, {}, OSError("database is locked"))

    cluster.put(stored(SALES).job_id, JobStatus.RUNNING)
    before = len(cluster.dispatcher.cancelled)
    event.listen(Log, "before_insert", refuse)
    try:
        answer = ask("edits-sales", at(SALES), "PATCH", headers=OWN)
    finally:
        event.remove(Log, "before_insert", refuse)
    assert answer.status_code == 202, answer.text
    assert "Airflow's audit log could not be written" in answer.json()["problem"]
    assert len(cluster.dispatcher.cancelled) == before + 1
    assert "is not in Airflow's audit log" in caplog.text


def test_logs_are_for_who_may_read_logs(ask: Ask) -> None:
    body = {"position": {}, "streams": ["stdout"], "wait": 60, "since": 10**15, "stranger": 1}
    assert ask("reads-sales", at(SALES, "/logs"), "POST", json=body).status_code == 200, "no field is passed on unnamed"
    assert ask("no-logs-sales", at(SALES, "/logs"), "POST", json=body).status_code == 403
    assert ask("no-logs-sales", at(SALES)).status_code == 200
    assert ask("reads-sales", at(SALES, "/logs"), "POST", content=b"[]").status_code == 400
    assert ask("reads-sales", at(SALES, "/logs"), "POST", content=b"x" * 300_000).status_code == 413
    assert ask("reads-sales", at(SALES, "/logs"), "POST", json={"position": {"live": 1}}).status_code == 400


@pytest.mark.parametrize(
    "rest",
    [
        "/vertices/x",
        "/yarn-cancel",
        "/status",
        "/clientHeartbeat",
        "/move",
        "/..%2f..%2ftaskmanagers",
        "/plan%3fx",
        "/plan/x",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_what_is_not_named_is_not_passed_on(ask: Ask, method: str, rest: str, cluster: RestThread) -> None:  # R56
    assert ask("edits-sales", at(SALES, rest), method, headers=OWN).status_code in {404, 405}
    assert cluster.dispatcher.moves == []


def test_a_connection_of_another_type_is_not_asked(ask: Ask) -> None:  # R56
    place = TaskPlace("sales.http", "run-1", "load", -1)
    answer = ask("edits-sales", at(place))
    assert answer.status_code == 404
    assert "of type http" in answer.json()["errors"][0]


def test_pages(ask: Ask) -> None:
    html = {"accept": "text/html"}
    job = stored(SALES).job_id
    tab = ask("reads-sales", "task?dag=sales.daily&run=run-1&task=load&map=%7BMAP_INDEX%7D", headers=html)
    assert tab.status_code == 307
    assert tab.headers["location"] == f"./ti/{SALES.reference()}/ui/jobs/{job}"
    page = ask("reads-sales", f"ti/{SALES.reference()}/ui/jobs/{job}/timeline", headers=html)
    assert "frame-ancestors 'self'" in page.headers["content-security-policy"]
    assert 'base href="../../../"' in page.text
    none = ask("reads-sales", "task?dag=sales.daily&run=run-1&task=other", headers=html)
    assert (none.status_code, "No job yet" in none.text) == (200, True)
    lie = ask("reads-sales", "task?dag=sales.daily&run=run-1&task=load&map=3", headers=html)
    assert "No job yet" in lie.text
    stranger = ask("", "ui/jobs", headers=html)
    assert (stranger.status_code, "Not signed in" in stranger.text) == (401, True)
    assert ask("reads-sales", "task?dag=staff.pay&run=run-1&task=load", headers=html).status_code == 403
    hostile = ask("reads-sales", "ti/%3Cscript%3E/ui/jobs/x", headers=html)
    assert "<script>" not in hostile.text


def test_a_cluster_that_does_not_answer_is_named(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json("http://127.0.0.1:1", token=TOKEN))
    answer = ask("reads-sales", at(SALES))
    assert (answer.status_code, "does not answer" in answer.text) == (503, True)
    assert "flinklike_default does not answer" in str(ask("reads-sales", "jobs/overview").json()["problems"])


def test_a_wrong_token_says_nothing_of_it(ask: Ask, cluster: RestThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(cluster.address, token="not-a-good-one"))
    answer = ask("reads-sales", at(SALES))
    assert answer.status_code == 502
    assert "not-a-good-one" not in answer.text

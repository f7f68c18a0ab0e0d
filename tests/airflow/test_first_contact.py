"""A wrong host, port, scheme or type of connection is told soon; a cluster that has answered is waited for."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.exceptions import (
    ClusterUnavailableError,
    ForeignAnswerError,
    HandshakeRefusedError,
    JobRefusedError,
)
from airflow_flinklike.operators.cancel import FlinklikeCancelOperator
from airflow_flinklike.task_instance.stored_job import STORE_KEY
from tests.kit.airflow.connection import connection_json
from tests.kit.airflow.context import FakeStateStore, context
from tests.kit.airflow.jobs import only_job, started, submit
from tests.kit.rest.fake_cluster import TOKEN, FakeCluster


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is ours and at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__FLINKLIKE__FIRST_CONTACT_TIMEOUT", "0.4")


def lead_to(monkeypatch: pytest.MonkeyPatch, host: str, **more: Any) -> None:
    given = {"conn_type": "flinklike", "host": host, "password": TOKEN, **more}
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", json.dumps(given))


def test_a_refused_port(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    lead_to(monkeypatch, "127.0.0.1", port=closed_port)
    with pytest.raises(ClusterUnavailableError, match=f"answers at http://127.0.0.1:{closed_port}.*refused"):
        submit().execute(context())
    with pytest.raises(ClusterUnavailableError, match=f"answers at http://127.0.0.1:{closed_port}.*refused"):
        FlinklikeCancelOperator(task_id="c", job_id="a" * 32).execute(context())


def test_a_name_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    lead_to(monkeypatch, "no-such-host.invalid:8081")
    with pytest.raises(ClusterUnavailableError, match=r"http://no-such-host.invalid:8081.*\[Errno -\d+\]"):
        submit().execute(context())


def test_several_addresses_with_a_cause_each(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    lead_to(monkeypatch, f"127.0.0.1:{closed_port},no-such-host.invalid:1")
    with pytest.raises(ClusterUnavailableError) as caught:
        submit().execute(context())
    assert f"http://127.0.0.1:{closed_port}: [Errno 111]" in str(caught.value)
    assert "http://no-such-host.invalid:1: [Errno" in str(caught.value)


@pytest.mark.parametrize("kind", ["spark", "livy", "postgres"])
def test_a_connection_of_another_type(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    lead_to(monkeypatch, "spark://master", port=7077, conn_type=kind)
    with pytest.raises(JobRefusedError) as caught:
        submit().execute(context())
    assert str(caught.value) == (
        f"connection 'flinklike_default' to spark://master is of type '{kind}': "
        "expected one of type 'flinklike', whose host is a JobManager"
    )


class _Page(BaseHTTPRequestHandler):
    status = 200

    body = b"<html>"

    def do_POST(self) -> None:
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Silent."""


@contextmanager
def another_server(status: int, body: bytes = b"<html>") -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Page", (_Page,), {"status": status, "body": body}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with another_server(200) as port:
        lead_to(monkeypatch, "127.0.0.1", port=port)
        with pytest.raises(ForeignAnswerError, match=f"http://127.0.0.1:{port}/jobs is not one of a JobManager"):
            submit().execute(context())


def test_a_proxy_before_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    with another_server(503) as port:
        lead_to(monkeypatch, "127.0.0.1", port=port)
        with pytest.raises(ClusterUnavailableError, match=f"no JobManager answers at http://127.0.0.1:{port}.*503"):
            submit().execute(context())


def test_a_cluster_that_answers_and_cannot_yet() -> None:
    with another_server(503, b'{"errors": ["job 1 waits for a JobMaster: ask again"]}') as port:
        address = f"http://127.0.0.1:{port}"
        with (
            FlinklikeClient([address], None, retry_for=0.0) as client,
            pytest.raises(ClusterUnavailableError, match=f"^{address} cannot do this yet: .* waits for a JobMaster"),
        ):
            client.post("/jobs/1/stop", {})


def test_tls_where_there_is_none(monkeypatch: pytest.MonkeyPatch, rest: FakeCluster) -> None:
    lead_to(monkeypatch, rest.url.removeprefix("http://"), extra={"tls": True})
    with pytest.raises(HandshakeRefusedError, match=r"https://127\.0\.0\.1:.*it speaks no TLS"):
        submit().execute(context())


def test_a_server_that_hangs_up_may_want_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                peer.recv(10)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass
                peer.close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        lead_to(monkeypatch, "127.0.0.1", port=server.getsockname()[1])
        with pytest.raises(ClusterUnavailableError, match="does that server speak TLS"):
            submit().execute(context())
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_try_after_one_without_contact_is_as_impatient(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    store = FakeStateStore()
    lead_to(monkeypatch, "127.0.0.1", port=closed_port)
    for _ in range(2):
        with pytest.raises(ClusterUnavailableError, match="no JobManager answers"):
            submit().execute(context(store))
        assert store.values[STORE_KEY]["is_unanswered"] is True


def test_it_gets_the_same_job_when_the_cluster_answers(
    monkeypatch: pytest.MonkeyPatch, closed_port: int, rest: FakeCluster
) -> None:
    store, right = FakeStateStore(), connection_json(rest.url)
    lead_to(monkeypatch, "127.0.0.1", port=closed_port)
    with pytest.raises(ClusterUnavailableError):
        submit().execute(context(store))
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", right)
    first = store.values[STORE_KEY]["job_id"]
    submit().execute(context(store))
    assert only_job(rest)[0] == first
    assert "is_unanswered" not in store.values[STORE_KEY]


def test_a_job_of_an_earlier_try_is_worth_the_long_patience(
    monkeypatch: pytest.MonkeyPatch, closed_port: int, rest: FakeCluster
) -> None:
    store, _ = started(rest, "hang")
    monkeypatch.setenv("AIRFLOW__FLINKLIKE__FIRST_CONTACT_TIMEOUT", "0")
    monkeypatch.setenv("AIRFLOW__FLINKLIKE__RETRY_FOR", "1")
    lead_to(monkeypatch, "127.0.0.1", port=closed_port)
    with pytest.raises(ClusterUnavailableError, match=r"tried for 1 s\): "):
        submit("hang").execute(context(store))


def test_after_an_answer_the_long_patience_holds(rest: FakeCluster, closed_port: int) -> None:
    addresses = [rest.url, f"http://127.0.0.1:{closed_port}"]
    with FlinklikeClient(addresses, TOKEN, retry_for=5.0, first_contact=0.0) as client:
        assert client.contact.left() == 0
        client.get("/overview")
        assert client.contact.left() == float("inf")


def test_connections_that_break_before_the_first_answer_are_tried_again(
    monkeypatch: pytest.MonkeyPatch, rest: FakeCluster
) -> None:
    monkeypatch.setenv("AIRFLOW__FLINKLIKE__FIRST_CONTACT_TIMEOUT", "60")
    rest.lost_answers = 2
    submit().execute(context())
    only_job(rest)

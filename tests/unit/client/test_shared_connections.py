"""Clients of one process share connections and the last address that has answered; forked processes do not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from airflow_flinklike.client import ClientTls, FlinklikeClient
from airflow_flinklike.client.connections import shared_connections
from airflow_flinklike.exceptions import ClusterUnavailableError
from tests.kit.cluster.script_cluster import free_port
from tests.kit.rest.fake_cluster import TOKEN, FakeCluster, fake_cluster


@pytest.fixture
def rest() -> Iterator[FakeCluster]:
    with fake_cluster() as cluster:
        yield cluster
        shared_connections([cluster.url], TOKEN).close()


def client(*addresses: str) -> FlinklikeClient:
    return FlinklikeClient(addresses, TOKEN, retry_for=0.0, connections=shared_connections(addresses, TOKEN))


def test_a_client_that_is_closed_leaves_the_connections_to_the_next_one(rest: FakeCluster) -> None:
    for _ in range(3):
        with client(rest.url) as one:
            one.get("/overview")
    assert len(rest.peers) == 1


def test_they_are_for_one_cluster_token_and_certificate() -> None:
    one = shared_connections(["http://a:1"], "t")
    assert shared_connections(["http://a:1"], "t") is one
    others = [
        shared_connections(["http://b:1"], "t"),
        shared_connections(["http://a:1"], "u"),
        shared_connections(["http://a:1"], "t", tls=ClientTls(ca=False)),
    ]
    assert one not in others
    assert len(set(map(id, others))) == 3


def test_the_address_that_answered_is_tried_first_by_the_next_client(rest: FakeCluster) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    client(dead, rest.url).get("/overview")
    assert shared_connections([dead, rest.url], TOKEN).preferred == 1
    client(dead, rest.url).get("/overview")
    shared_connections([dead, rest.url], TOKEN).close()


def test_many_threads_use_one_client(rest: FakeCluster) -> None:
    one = client(rest.url)
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(one.get("/overview")["slots-total"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [4] * 8


def test_a_fork_has_connections_of_its_own(rest: FakeCluster) -> None:
    client(rest.url).get("/overview")
    before = shared_connections([rest.url], TOKEN)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            client(rest.url).get("/overview")
            status = 0 if shared_connections([rest.url], TOKEN) is not before and not before.http.is_closed else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    client(rest.url).get("/overview")
    assert len(rest.peers) == 2
    assert shared_connections([rest.url], TOKEN) is before


def test_own_connections_are_closed() -> None:
    own = FlinklikeClient([f"http://127.0.0.1:{free_port()}"], TOKEN, retry_for=0.0)
    with own, pytest.raises(ClusterUnavailableError):
        own.get("/overview")
    with pytest.raises(RuntimeError, match="closed"):
        own.get("/overview")

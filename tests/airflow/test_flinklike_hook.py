"""FlinklikeHook: how a connection is read, and both clients over a real socket."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.client import ClientTls
from airflow_flinklike.exceptions import AuthenticationError, JobRefusedError
from airflow_flinklike.hooks.connection import ClusterAccess, parse_connection
from airflow_flinklike.hooks.flinklike import FlinklikeHook
from airflow_flinklike.provider_info import get_provider_info
from runtime.common.ids import JobId
from tests.kit.control_plane.job_graphs import lone
from tests.kit.rest.fake_cluster import TOKEN, FakeCluster

JOB = JobId("a" * 32)


def connection(**fields: Any) -> Any:
    from airflow.sdk import Connection

    extra = fields.pop("extra", {})
    return Connection(conn_id="c", conn_type="flinklike", extra=json.dumps(extra), **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("http://127.0.0.1:8081",)),
        ({"host": "jm"}, ("http://jm:8081",)),
        ({"host": "jm", "port": 9000, "schema": "https"}, ("https://jm:9000",)),
        ({"host": "jm1:1, jm2:2"}, ("http://jm1:1", "http://jm2:2")),
        ({"host": "https://jm.example"}, ("https://jm.example:8081",)),
        ({"host": "[::1]:9000"}, ("http://[::1]:9000",)),
        ({"host": "[::1]"}, ("http://[::1]:8081",)),
        ({"host": "::1"}, ("http://[::1]:8081",)),
        ({"host": "https://fe80::2, ::3", "port": 1}, ("https://[fe80::2]:1", "http://[::3]:1")),
    ],
)
def test_addresses(fields: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert parse_connection(connection(**fields)).addresses == expected


def test_the_token_is_the_password_then_a_file_then_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    monkeypatch.setenv("FLINKLIKE_TOKEN", "from-environment")
    extra = {"token_file": str(file)}
    assert parse_connection(connection(password="given", extra=extra)).token == "given"
    assert parse_connection(connection(extra=extra)).token == "from-file"
    assert parse_connection(connection()).token == "from-environment"


def test_a_named_token_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(AuthenticationError, match="cannot be read"):
        parse_connection(connection(extra={"token_file": str(tmp_path / "nope")}))


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), ("false", False), ("true", True), ("/ca.pem", "/ca.pem"), (False, False)]
)
def test_verify(value: object, expected: object) -> None:
    assert parse_connection(connection(extra={"verify": value})).tls.ca == expected


def test_job_links_lead_to_the_address_for_browsers() -> None:
    assert parse_connection(connection()).job_url(JOB) == f"http://127.0.0.1:8081/ui/jobs/{JOB}"
    proxied = parse_connection(connection(extra={"ui_url": "https://flink.example/"}))
    assert proxied.job_url(JOB) == f"https://flink.example/ui/jobs/{JOB}"


def test_the_blocking_client(rest: FakeCluster) -> None:
    rest.results["finish"] = [1, 2]
    with FlinklikeHook().get_conn() as client:
        client.submit(lone(name="finish"), job_id=JOB)
        assert client.wait_for_result(JOB).value_or_raise() == [1, 2]


@pytest.mark.asyncio
async def test_the_asyncio_client(rest: FakeCluster) -> None:
    rest.results["finish"] = {"a": 1}
    async with await FlinklikeHook().aget_conn() as client:
        await client.submit(lone(name="finish"), job_id=JOB)
        assert (await client.wait_for_result(JOB)).value_or_raise() == {"a": 1}


def connect_to(monkeypatch: pytest.MonkeyPatch, host: str, password: str = TOKEN, **extra: Any) -> None:
    text = json.dumps(
        {"conn_type": "flinklike", "host": host.removeprefix("http://"), "password": password, "extra": extra}
    )
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", text)


def test_the_button_in_the_form_names_the_leader(rest: FakeCluster) -> None:
    del rest
    assert FlinklikeHook().test_connection() == (
        True,
        "Connected: leader jm-1:8081, version 0.1.0, 3 of 4 slots free on 1 TaskManager",
    )


def test_the_button_asks_every_address(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    connect_to(monkeypatch, rest.url, addresses="127.0.0.1:9")
    is_up, message = FlinklikeHook().test_connection()
    assert is_up
    assert message.startswith("Connected: leader jm-1:8081, ")
    assert ". No answer from http://127.0.0.1:9: no JobManager answers at http://127.0.0.1:9" in message


def test_the_button_says_what_is_wrong(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    connect_to(monkeypatch, rest.url, "wrong")
    assert FlinklikeHook().test_connection() == (False, f"{rest.url}: the cluster's token is missing or wrong")
    connect_to(monkeypatch, "127.0.0.1:1", addresses=["127.0.0.1:9"])
    is_up, message = FlinklikeHook().test_connection()
    assert not is_up
    assert [f"http://127.0.0.1:{port}: no JobManager answers" in message for port in (1, 9)] == [True, True]
    connect_to(monkeypatch, rest.url, conf="{")
    is_up, message = FlinklikeHook().test_connection()
    assert (is_up, message[:46]) == (False, "the connection's extra 'conf' is not JSON: Exp")
    assert FlinklikeHook("nobody_made_it").test_connection()[0] is False


@pytest.mark.parametrize(
    ("extra", "fields", "expected"),
    [
        ({"addresses": "jm2,jm3:9"}, {"host": "jm1:1"}, ("http://jm1:1", "http://jm2:8081", "http://jm3:9")),
        ({"addresses": ["jm2", "jm1"]}, {"host": "jm1"}, ("http://jm1:8081", "http://jm2:8081")),
        ({"addresses": "jm2"}, {}, ("http://jm2:8081",)),
        ({"tls": True}, {"host": "jm"}, ("https://jm:8081",)),
        ({"tls": "true"}, {"host": "jm", "schema": "http"}, ("https://jm:8081",)),
        ({"tls": False}, {"host": "jm", "schema": "https"}, ("https://jm:8081",)),
        ({"tls": ""}, {"host": "http://jm:1/"}, ("http://jm:1",)),
    ],
)
def test_addresses_of_the_form(extra: dict[str, Any], fields: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert parse_connection(connection(extra=extra, **fields)).addresses == expected


@pytest.mark.parametrize("given", [{"spark.sql.ansi.enabled": False, "spark.executor.cores": 2}, None])
def test_default_conf(given: Any) -> None:
    texts = {"spark.sql.ansi.enabled": "false", "spark.executor.cores": "2"} if given else {}
    for form in (given, json.dumps(given)):
        access = parse_connection(connection(extra={"conf": form}))
        assert access.conf == texts


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"conf": "[1]"}, "extra 'conf' is a list, expected an object"),
        ({"conf": "spark.a=b"}, "extra 'conf' is not JSON"),
        ({"tls": "yes"}, "extra 'tls' is 'yes', expected true or false"),
    ],
)
def test_what_cannot_be_meant(extra: dict[str, Any], message: str) -> None:
    with pytest.raises(JobRefusedError, match=re.escape(message)):
        parse_connection(connection(extra=extra))


def test_the_forms_fields_are_those_that_are_read() -> None:
    """Every field of the form reaches the connection under its own name."""
    spoken = {"tls": True, "verify": "/ca.pem", "addresses": "jm2", "ui_url": "https://ui", "cert": "/c", "key": "/k"}
    fields = {**spoken, "conf": {"a": "b"}, "namespace": "team-a"}
    assert set(get_provider_info()["connection-types"][0]["conn-fields"]) == {*fields, "token_file"}
    access = parse_connection(connection(host="jm1", password="t", extra=fields))
    addresses = ("https://jm1:8081", "https://jm2:8081")
    assert access == ClusterAccess(
        addresses, "t", ClientTls("/ca.pem", "/c", "/k"), "https://ui", {"a": "b"}, "team-a", "t"
    )

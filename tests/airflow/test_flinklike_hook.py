"""FlinklikeHook: how a connection is read, and both clients over a real socket."""

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.exceptions import AuthenticationError
from airflow_flinklike.hooks.flinklike import FlinklikeHook, parse_connection
from runtime.common.ids import JobId
from tests.kit.fake_rest import FakeCluster
from tests.kit.job_graphs import lone

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
    assert parse_connection(connection(extra={"verify": value})).verify == expected


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


def test_the_button_in_the_form(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FlinklikeHook().test_connection() == (
        True,
        "Connected: 1 TaskManagers, 3 of 4 slots free, version 0.1.0",
    )
    wrong = json.dumps({"conn_type": "flinklike", "host": rest.url, "password": "wrong"}).replace("http://", "")
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", wrong)
    assert FlinklikeHook().test_connection() == (False, "the cluster's token is missing or wrong")
    gone = json.dumps({"conn_type": "flinklike", "host": "127.0.0.1", "port": 1, "password": "x"})
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", gone)
    is_up, message = FlinklikeHook().test_connection()
    assert not is_up
    assert "no JobManager answers at http://127.0.0.1:1" in message

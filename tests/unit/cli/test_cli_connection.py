"""How the command line finds its cluster: running JobManagers, then conf/; errors in conf/ are reported."""

from pathlib import Path

import httpx
import pytest

from airflow_flinklike.cli.connection import connect, local_address
from airflow_flinklike.exceptions import AuthenticationError
from runtime.config.loading import InvalidConfigurationError
from tests.kit.host.command_line import RunCommand
from tests.kit.rest.server import TOKEN
from tests.kit.services.certificates import Made

CA = Made.new()


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config.yaml of an installation, with an environment that names nothing else."""
    for name in ("FLINKLIKE_ADDRESS", "FLINKLIKE_TOKEN", "FLINKLIKE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLINKLIKE_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("FLINKLIKE_RUN_DIR", str(tmp_path / "run"))
    (tmp_path / "run" / "pid").mkdir(parents=True)
    return tmp_path / "config.yaml"


def test_a_running_job_manager_knows_better_than_the_file(conf: Path) -> None:
    conf.write_text("rest: {address: master-1, port: 8083}\n")
    assert local_address() == "http://master-1:8083"
    (conf.parent / "run" / "pid" / "jobmanager-0.json").write_text('{"address": "127.0.0.1:18081"}')
    assert local_address() == "http://127.0.0.1:18081"


def test_all_addresses_that_are_known_are_tried(conf: Path) -> None:
    conf.write_text("rest.addresses: master-1:8081, 127.0.0.1:18081\n")
    assert local_address() == "http://master-1:8081,http://127.0.0.1:18081"
    (conf.parent / "run" / "pid" / "jobmanager-0.json").write_text('{"address": "127.0.0.1:18081"}')
    assert local_address() == "http://127.0.0.1:18081,http://master-1:8081"


def test_a_broken_file_is_said(conf: Path) -> None:
    conf.write_text("rest.prot: 8083\n")
    with pytest.raises(InvalidConfigurationError, match=r"rest\.prot.*did you mean rest\.port"):
        local_address()


def test_the_configured_token_file_is_used(
    conf: Path, flinklike: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also relative to the run directory, as the processes of the cluster read it."""
    monkeypatch.delenv("FLINKLIKE_TOKEN")
    (tmp_path / "secret").write_text(TOKEN)
    for path in (tmp_path / "secret", "../secret"):
        conf.write_text(f"security.token-file: {path}\n")
        assert flinklike("list").code == 0
    (tmp_path / "secret").write_text("another")
    assert flinklike("list").code == 1


def test_a_configured_token_file_that_is_not_there_is_said(conf: Path) -> None:
    conf.write_text("security.token-file: /no/such/file\n")
    with pytest.raises(AuthenticationError, match="/no/such/file cannot be read"):
        connect("127.0.0.1:1", None)
    conf.write_text("security: {token-file: /no/such/file, authentication: none}\n")
    connect("127.0.0.1:1", None).close()


def test_who_is_refused_is_told_where_the_token_came_from(
    conf: Path, flinklike: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    conf.write_text("{}")
    monkeypatch.setenv("FLINKLIKE_TOKEN", "wrong")
    assert "(shown was the token of FLINKLIKE_TOKEN)" in flinklike("list").err
    (tmp_path / "wrong").write_text("wrong")
    assert f"(shown was the token of {tmp_path}/wrong)" in flinklike("list", "--token-file", f"{tmp_path}/wrong").err
    monkeypatch.delenv("FLINKLIKE_TOKEN")
    (tmp_path / "run" / "token").write_text("wrong")
    assert f"(shown was the token of {tmp_path}/run/token)" in flinklike("list").err


def test_no_token_shows_none(conf: Path, flinklike: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    conf.write_text("security.token-file: /no/such/file\n")
    monkeypatch.setenv("FLINKLIKE_NO_TOKEN", "")  # what the option sets is put back
    assert "The token that this request shows" not in flinklike("--no-token", "list").err
    both = flinklike("--no-token", "list", "--token-file", "token")
    assert (both.code, "and --no-token" in both.err) == (1, True)


def test_a_certificate_of_ones_own_goes_in_place_of_the_token_of_the_installation(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf.write_text("rest.port: 18081\n")
    (conf.parent / "run" / "token").write_text("of-the-installation")
    shown = CA.shown()
    (conf.parent / "alice.pem").write_bytes(shown.pem)
    monkeypatch.setenv("FLINKLIKE_CERT", str(conf.parent / "alice.pem"))
    for address, is_shown in (("https://127.0.0.1:1", False), ("http://127.0.0.1:1", True)):
        with connect(address, None) as client:
            auth = client._connections.http.auth
            assert auth is not None
            request = next(auth.auth_flow(httpx.Request("GET", address)))
        assert ("authorization" in request.headers) == is_shown, address

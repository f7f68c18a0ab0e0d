"""Where a client finds the address and the token by default."""

from pathlib import Path

import pytest

from airflow_flinklike.client import find_address, find_credential, find_token
from airflow_flinklike.client.token import token_of
from airflow_flinklike.exceptions import AuthenticationError


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("named", "environment", "run/token", "home/run/token"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"token of {name}\n")
    return tmp_path


def test_the_nearest_source_wins(files: Path) -> None:
    environment = {
        "FLINKLIKE_TOKEN": "token itself",
        "FLINKLIKE_TOKEN_FILE": str(files / "environment"),
        "FLINKLIKE_RUN_DIR": str(files / "run"),
        "FLINKLIKE_HOME": str(files / "home"),
    }
    found = [find_token(environment, token_file=str(files / "named"))]
    for name in ("FLINKLIKE_TOKEN", "FLINKLIKE_TOKEN_FILE", "FLINKLIKE_RUN_DIR", "FLINKLIKE_HOME"):
        found.append(find_token(environment))
        environment.pop(name)
    assert found == [
        "token of named",
        "token itself",
        "token of environment",
        "token of run/token",
        "token of home/run/token",
    ]


def test_a_file_that_was_named_must_be_readable(files: Path) -> None:
    with pytest.raises(AuthenticationError, match=r"nowhere cannot be read: No such file"):
        find_token({}, token_file=str(files / "nowhere"))
    with pytest.raises(AuthenticationError, match="cannot be read"):
        find_token({"FLINKLIKE_TOKEN_FILE": str(files / "nowhere")})
    (files / "named").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AuthenticationError, match="does not hold a token"):
        find_token({}, token_file=str(files / "named"))


def test_no_token_anywhere_is_no_error(tmp_path: Path) -> None:
    assert find_token({"FLINKLIKE_RUN_DIR": str(tmp_path)}) is None


def test_a_certificate_that_was_named_goes_before_a_token_that_was_not(files: Path) -> None:
    around = {"FLINKLIKE_RUN_DIR": str(files / "run")}
    assert find_credential(around, certificate="alice.pem") is None
    assert find_credential(around, installed=str(files / "named"), certificate="alice.pem") is None
    named = {"FLINKLIKE_TOKEN_FILE": str(files / "environment"), **around}
    assert token_of(find_credential(named, certificate="alice.pem")) == "token of environment"
    assert token_of(find_credential({"FLINKLIKE_TOKEN": "said", **around}, certificate="alice.pem")) == "said"


def test_no_token_is_shown_where_somebody_says_so(files: Path) -> None:
    environment = {"FLINKLIKE_NO_TOKEN": "true", "FLINKLIKE_TOKEN": "said", "FLINKLIKE_RUN_DIR": str(files / "run")}
    assert find_credential(environment) is None
    assert find_token(environment, token_file=str(files / "named")) == "token of named"
    assert find_token({**environment, "FLINKLIKE_NO_TOKEN": "false"}) == "said"
    with pytest.raises(AuthenticationError, match="FLINKLIKE_NO_TOKEN is 'perhaps', expected true or false"):
        find_token({**environment, "FLINKLIKE_NO_TOKEN": "perhaps"})


def test_a_file_that_others_can_read_is_told_once(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = files / "named"
    for mode in (0o600, 0o644, 0o640, 0o644):
        file.chmod(mode)
        assert find_token({}, token_file=str(file)) == "token of named"
    assert caplog.messages == [f"others can read the token file {file} (mode 0644): chmod 600 it"]


def test_the_address(tmp_path: Path) -> None:
    assert find_address({"FLINKLIKE_ADDRESS": "a:1,b:2"}) == "a:1,b:2"
    assert find_address({"FLINKLIKE_RUN_DIR": str(tmp_path)}) == "http://127.0.0.1:8081"


def test_the_job_managers_of_the_run_directory_say_where_they_listen(tmp_path: Path) -> None:
    environment = {"FLINKLIKE_RUN_DIR": str(tmp_path)}
    (tmp_path / "pid").mkdir()
    (tmp_path / "pid" / "jobmanager-0.json").write_text('{"address": "127.0.0.1:18081", "rpc": "127.0.0.1:5"}')
    (tmp_path / "pid" / "jobmanager-1.json").write_text('{"address": "127.0.0.1:18082"}')
    (tmp_path / "pid" / "jobmanager-2.json").write_text("{")
    (tmp_path / "pid" / "standalonejob-0.json").write_text('{"address": "127.0.0.1:18083"}')
    assert find_address(environment) == "http://127.0.0.1:18081,http://127.0.0.1:18082,http://127.0.0.1:18083"
    assert find_address({**environment, "FLINKLIKE_ADDRESS": "a:1"}) == "a:1"

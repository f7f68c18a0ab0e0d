"""R41: ports without authentication beyond loopback need a second option."""

from __future__ import annotations

import pytest

from runtime.config.loading import InvalidConfigurationError, load
from runtime.config.options.jobmanager import REST_ALLOWED_HOSTS
from runtime.config.options.taskmanager import ENVIRONMENT_PASSED

OPEN = ("rest.bind-address", "jobmanager.bind-host", "jobmanager.jobmaster.bind-host", "taskmanager.bind-host")
NONE = ("high-availability.type=none", "jobmanager.jobmaster.single.enable=false", "security.authentication=none")


@pytest.mark.parametrize("option", OPEN)
@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "[::]", "master-1"])
def test_no_authentication_beyond_loopback_is_said_twice(option: str, host: str) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        load(None, environment={}, dynamic=[*NONE, f"{option}={host}"])
    (problem,) = caught.value.problems
    assert option in problem
    assert "security.allow-unauthenticated: true" in problem
    load(None, environment={}, dynamic=[*NONE, f"{option}={host}", "security.allow-unauthenticated=true"])
    load(None, environment={}, dynamic=[f"{option}={host}"])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]"])
def test_on_loopback_once_is_enough(host: str) -> None:
    load(None, environment={}, dynamic=[*NONE, *(f"{option}={host}" for option in OPEN)])


def test_allowed_hosts_are_hosts() -> None:
    configured = load(None, environment={}, dynamic=["rest.allowed-hosts=jobs.example, 10.0.0.1:8443;*"])
    assert configured.get(REST_ALLOWED_HOSTS) == ("jobs.example", "10.0.0.1:8443", "*")
    for wrong in ("http://jobs.example", "-x", "a b", "a:0", "a:x", "a:70000"):
        with pytest.raises(InvalidConfigurationError):
            load(None, environment={}, dynamic=[f"rest.allowed-hosts={wrong}"])


def test_settings_of_the_cluster_are_passed_to_no_task() -> None:
    configured = load(None, environment={}, dynamic=["taskmanager.environment.passed=AWS_*,MY_TOKEN"])
    assert configured.get(ENVIRONMENT_PASSED) == ("AWS_*", "MY_TOKEN")
    for wrong in ("FLINKLIKE_X", "FLINKLIKE*", "*", "A*B", "a-b", "1A"):
        with pytest.raises(InvalidConfigurationError, match="environment variables"):
            load(None, environment={}, dynamic=[f"taskmanager.environment.passed={wrong}"])


@pytest.mark.parametrize("option", ["security.internal.token-file=/x", "security.internal.accept-cluster-token=true"])
def test_without_authentication_a_credential_of_processes_has_no_effect(option: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"has no effect with security\.authentication: none"):
        load(None, environment={}, dynamic=[*NONE, option])

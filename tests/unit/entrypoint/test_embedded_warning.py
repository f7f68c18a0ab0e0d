"""An etcd that may lose consistency, or has no authentication, is logged, or ends the start."""

import json
import os
from pathlib import Path

import psutil
import pytest

from runtime.common.errors import InvalidInputError
from runtime.config.layout import Layout
from runtime.config.loading import load
from runtime.entrypoint.process_options import EtcdNotRunningError, high_availability_settings


@pytest.mark.parametrize(("version", "warned"), [("3.5.1", True), ("3.5.16", False)])
def test_an_old_embedded_etcd_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str, *, warned: bool
) -> None:
    """This test's own process stands where etcd would."""
    started = psutil.Process().create_time()
    state = {"pid": os.getpid(), "started": started, "endpoint": "127.0.0.1:1", "version": version, "scheme": "https"}
    (tmp_path / "etcd.json").write_text(json.dumps(state))
    dynamic = ["high-availability.type=etcd", "high-availability.etcd.embedded=true"]
    layout = Layout(home=tmp_path, conf=tmp_path, run=tmp_path)
    settings = high_availability_settings(load(None, environment={}, dynamic=dynamic), layout).etcd
    assert settings is not None
    assert settings.endpoints == ("127.0.0.1:1",)
    assert (f"the embedded etcd is version {version}" in caplog.text) is warned


def test_a_plain_one_of_an_earlier_release_is_not_used(tmp_path: Path) -> None:  # R37
    state = {"pid": os.getpid(), "started": psutil.Process().create_time(), "endpoint": "127.0.0.1:1"}
    (tmp_path / "etcd.json").write_text(json.dumps(state))
    dynamic = ["high-availability.type=etcd", "high-availability.etcd.embedded=true"]
    layout = Layout(home=tmp_path, conf=tmp_path, run=tmp_path)
    with pytest.raises(EtcdNotRunningError, match=r"without authentication: bin/start-cluster\.sh replaces it"):
        high_availability_settings(load(None, environment={}, dynamic=dynamic), layout)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_an_etcd_of_ones_own_that_lets_everybody_in_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_allowed: bool
) -> None:
    """Its records are sealed nevertheless (R38). Only processes that write make the key."""
    credentials = (
        ["high-availability.etcd.allow-unauthenticated=true"]
        if is_allowed
        else ["high-availability.etcd.username=u", "high-availability.etcd.password=p"]
    )
    dynamic = ["high-availability.type=etcd", "high-availability.etcd.endpoints=etcd-1:2379", *credentials]
    configuration = load(None, environment={}, dynamic=dynamic)
    layout = Layout(home=tmp_path, conf=tmp_path, run=tmp_path / "run")
    with pytest.raises(InvalidInputError, match=r"cannot read the cluster key file .*run/cluster-key"):
        high_availability_settings(configuration, layout, makes_key=False)
    made = high_availability_settings(configuration, layout)
    found = high_availability_settings(configuration, layout, makes_key=False)
    assert made.seal is not None
    assert found.seal is not None
    assert made.seal.sealed("/a", b"{}") == found.seal.sealed("/a", b"{}")
    assert ("every client of etcd can run code in this cluster" in caplog.text) is is_allowed
    assert ("cross the network in plain text" in caplog.text) is not is_allowed

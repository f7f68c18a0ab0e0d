"""Whoever relies on an embedded etcd of a version that may lose consistency has it in its log."""

import json
import os
from pathlib import Path

import psutil
import pytest

from runtime.config.configuration import load
from runtime.config.layout import Layout
from runtime.entrypoint.option_mapping import etcd_endpoints


@pytest.mark.parametrize(("version", "warned"), [("3.5.1", True), ("3.5.16", False)])
def test_an_old_embedded_etcd_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str, *, warned: bool
) -> None:
    """This test's own process stands where etcd would."""
    started = psutil.Process().create_time()
    state = {"pid": os.getpid(), "started": started, "endpoint": "127.0.0.1:1", "version": version}
    (tmp_path / "etcd.json").write_text(json.dumps(state))
    dynamic = ["high-availability.type=etcd", "high-availability.etcd.embedded=true"]
    layout = Layout(home=tmp_path, conf=tmp_path, run=tmp_path)
    assert etcd_endpoints(load(None, environment={}, dynamic=dynamic), layout) == ("127.0.0.1:1",)
    assert (f"the embedded etcd is version {version}" in caplog.text) is warned

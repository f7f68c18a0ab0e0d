"""The units of conf/systemd: what they start exists, they stop in order, and no process may more than it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from runtime.config.loading import load
from runtime.config.options.taskmanager import DRAIN_TIMEOUT
from runtime.entrypoint.control.daemon import STOP_TIMEOUT

ROOT = Path(__file__).resolve().parents[3]
UNITS = sorted((ROOT / "conf" / "systemd").glob("*.service"))
HOME = "/opt/flinklike"
EXPOSURE_MAX = 40
"""Tenths, of systemd's own judgement; 100 is a unit without any limits."""


def settings(unit: Path) -> dict[str, list[str]]:
    """Key -> its values, in order. Each key of these files is in one section only."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            key, separator, value = line.partition("=")
            assert separator, line
            found[key].append(value)
    return found


def here(unit: Path, folder: Path) -> Path:
    """The unit with this checkout as its installation; a template as its first instance."""
    copy = folder / unit.name
    copy.write_text(unit.read_text().replace(HOME, str(ROOT)))
    return copy


def test_there_is_one_for_each_process_of_a_cluster() -> None:
    assert [unit.name for unit in UNITS] == [
        "flinklike-jobmanager.service",
        "flinklike-jobmaster.service",
        "flinklike-taskmanager@.service",
    ]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_starts_a_script_in_the_foreground_as_an_own_user(unit: Path) -> None:
    found = settings(unit)
    ((script, verb),) = [command.split() for command in found["ExecStart"]]
    assert os.access(script.replace(HOME, str(ROOT)), os.X_OK)
    assert verb == "start-foreground"
    assert found["User"] == found["Group"] == ["flinklike"]
    variables = dict(one.split("=", 1) for one in found["Environment"])
    assert variables["FLINKLIKE_HOME"] == HOME
    assert variables["FLINKLIKE_RUN_DIR"] == f"/var/lib/{found['StateDirectory'][0]}"
    load(None, environment=variables)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_stop_is_in_order_and_no_failure(unit: Path) -> None:
    found = settings(unit)
    assert found["SuccessExitStatus"] == ["143"]
    assert found["KillMode"] == ["mixed"], "the guard of a TaskManager, and no signal, ends what it has started"
    drain = load(None, environment={}).get(DRAIN_TIMEOUT).total_seconds() if "taskmanager" in unit.name else 0
    assert int(found["TimeoutStopSec"][0]) >= drain + STOP_TIMEOUT + 10


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_may_not_more_than_it_needs(unit: Path) -> None:
    found = settings(unit)
    assert found["NoNewPrivileges"] == found["RestrictSUIDSGID"] == ["yes"]
    assert found["ProtectSystem"] == ["strict"]
    assert found["CapabilityBoundingSet"] == [""]
    assert found["UMask"] == ["0077"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_it(unit: Path, tmp_path: Path) -> None:
    copy = here(unit, tmp_path)
    for words in (
        ["verify", "--man=no"],
        ["security", "--offline=yes", f"--threshold={EXPOSURE_MAX}"],
    ):
        done = subprocess.run(["systemd-analyze", *words, str(copy)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Unknown" not in done.stderr, done.stderr
        assert "ignoring" not in done.stderr, done.stderr

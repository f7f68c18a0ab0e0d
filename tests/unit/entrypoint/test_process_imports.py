"""What a process loads when it starts: the web framework only where REST is served."""

from __future__ import annotations

import subprocess
import sys

import pytest

FOREIGN = "fastapi uvicorn starlette httpx typer rich runtime.rest runtime.dispatcher.endpoint runtime.resourcemanager"
SHOW = "import importlib, sys; importlib.import_module({module!r}); print(sorted(set({names!r}) & set(sys.modules)))"


def loaded(module: str, names: str) -> str:
    program = SHOW.format(module=module, names=names.split())
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("module", ["runtime.entrypoint.task_manager_process", "jobmaster_process.__main__"])
def test_only_the_job_manager_loads_rest(module: str) -> None:
    assert loaded(module, f"{FOREIGN} grpc") == "['grpc']"


@pytest.mark.parametrize(
    "module",
    ["runtime.entrypoint.job_manager", "runtime.entrypoint.task_manager_process", "jobmaster_process.entry_point"],
)
def test_what_reports_metrics_is_loaded_where_it_is_on_only(module: str) -> None:
    names = "prometheus_client runtime.metrics.prometheus runtime.metrics.counted runtime.metrics.http_port"
    assert loaded(module, f"{names} runtime.metrics.registry") == "['runtime.metrics.registry']"


def test_the_job_manager_does() -> None:
    assert loaded("runtime.entrypoint.job_manager", "fastapi runtime.rest") == "['fastapi', 'runtime.rest']"

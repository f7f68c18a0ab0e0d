"""The scripts in front of Python: an environment that is not ours, a broken uv, an environment made by half."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite.rotation import SHARES

ROOT = Path(__file__).resolve().parents[3]
TOOLS = (
    "awk",
    "bash",
    "cat",
    "cksum",
    "cut",
    "dirname",
    "echo",
    "env",
    "grep",
    "mktemp",
    "readlink",
    "rm",
    "rmdir",
    "sed",
    "sleep",
    "sort",
    "tail",
    "tr",
)

HALF_A_VENV = """#!/bin/sh
if [ "$1" = -m ]; then mkdir -p .venv/bin; touch .venv/bin/python; chmod +x .venv/bin/python; exit 1; fi
exec {python} "$@"
"""
MAKES_A_VENV = """#!/bin/sh
echo "$*" >> {log}
if [ "$1" = venv ]; then exec {python} -m venv --without-pip .venv; fi
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A checkout without `.venv`, and a PATH with what every machine has, but no Python."""
    for part in ("bin", "requirements", "pyproject.toml"):
        source = ROOT / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / "home" / part)
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in (*TOOLS, "mkdir", "touch", "chmod"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    return tmp_path / "home"


def add_tool(home: Path, name: str, text: str) -> None:
    program = home.parent / "tools" / name
    program.write_text(text)
    program.chmod(0o755)


def add_python(home: Path) -> None:
    """A Python without any package."""
    bare = home.parent / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    (home.parent / "tools/python3").symlink_to(bare / "bin/python")


def run(home: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": str(home.parent / "tools"), "TMPDIR": str(home.parent), **environment}
    return subprocess.run(command, env=variables, cwd=home, capture_output=True, text=True, check=False)


def ensure_environment(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    script = 'FLINKLIKE_HOME="$PWD"; source bin/environment.sh; ensure_environment requirements/base.txt'
    return run(home, "bash", "-c", script, **environment)


@pytest.mark.parametrize("script", ["bin/flinklike", "bin/start-cluster.sh", "bin/taskmanager.sh", "bin/bench.sh"])
def test_a_python_without_our_packages_is_one_sentence(home: Path, script: str) -> None:
    assert run(home, script).stderr == (
        "No Python found: run bin/quickstart.sh, or set FLINKLIKE_PYTHON to a Python 3.11 with this package.\n"
    )
    add_python(home)
    done = run(home, script)
    assert done.returncode == 1
    assert done.stderr == (
        f"{home.parent}/tools/python3 cannot run this (psutil is missing): run bin/quickstart.sh, or set "
        "FLINKLIKE_PYTHON.\n"
    )


def test_a_script_finds_its_home_through_links(home: Path) -> None:
    link = home.parent / "link"
    link.symlink_to(home / "bin/flinklike")
    (home / "airflow_flinklike/cli").mkdir(parents=True)
    (home / "airflow_flinklike/cli/__main__.py").write_text("print(__file__)")
    done = run(home, str(link), FLINKLIKE_PYTHON=sys.executable)
    assert done.stdout == f"{home}/airflow_flinklike/cli/__main__.py\n", done.stderr


def test_an_environment_made_by_half_is_removed(home: Path) -> None:
    add_tool(home, "python3", HALF_A_VENV.format(python=sys.executable))
    first, second = ensure_environment(home), ensure_environment(home)
    assert first.returncode == second.returncode == 1
    assert "Making .venv failed" in first.stderr
    assert "Making .venv failed" in second.stderr
    assert not (home / ".venv").exists()


def test_uv_makes_the_environment_where_it_is(home: Path) -> None:
    log = home.parent / "uv.log"
    add_tool(home, "python3", HALF_A_VENV.format(python=sys.executable))
    add_tool(home, "uv", MAKES_A_VENV.format(python=sys.executable, log=log))
    done = ensure_environment(home)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["venv", "pip", "pip"]
    assert "current" in ensure_environment(home).stdout


TEST_TOOLS = ("pytest", "_pytest", "pytest_asyncio", "hypothesis", "docker", "jsonschema")
"""What requirements/test.txt adds, beside plugins: bin/quickstart.sh does not install it, bin/test.sh does."""


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("bin/bench.sh", ["job-lists", "--small"], "longest hold of the loop"),
        ("bin/bench.sh", ["scheduler-core", "--small"], "CPU of a no-op job"),
        ("bin/simulate.sh", ["--seeds", "1"], "1 seed"),
        ("bin/chaos.sh", ["--help"], "--minutes"),
        ("bin/demo-failover.sh", ["--help"], "--blocks"),
    ],
)
def test_what_the_docs_have_users_run_needs_no_test_tools(
    tmp_path: Path, script: str, arguments: list[str], said: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({TEST_TOOLS!r}))\n")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path), "FLINKLIKE_PYTHON": sys.executable}
    command = [str(ROOT / script), *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert said in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


PYTEST = """#!/bin/sh
echo "pytest $*"
echo "SPENT tests/unit/test_a.py 3 4" >> "$FLINKLIKE_TEST_NOTES"
echo "FAILED tests/unit/test_a.py::test_it" >> "$FLINKLIKE_TEST_NOTES"
case "$*" in
  *" -m not "*) exit {light} ;;
  *" -m airflow"*) exit {airflow} ;;
  *" -m spark and (slow or process)"*) exit {slow_spark} ;;
  *" -m spark"*) exit {spark} ;;
  *) exit {heavy} ;;
esac
"""
PYTHON = """#!/bin/sh
case "$*" in
  *tests.suite.changed*)
    printf '%s\\n' 'light tests/unit/test_a.py' 'heavy tests/process/test_b.py' 'light tests/unit/test_c.py' ;;
  *) echo "python $*" ;;
esac
"""
QUIET = "pytest -q --durations=15"
HEAVY, JVM = "etcd or process or slow", "spark or airflow"


def run_tests(
    home: Path,
    *arguments: str,
    light: int = 0,
    heavy: int = 0,
    airflow: int = 0,
    spark: int = 0,
    slow_spark: int = 0,
    environment: str = "",
) -> subprocess.CompletedProcess[str]:
    """bin/test.sh with tools that only say what they were told to do."""
    (home / "bin/environment.sh").write_text(f"ensure_environment() {{ :; }}\n{environment}\n")
    (home / ".venv/bin").mkdir(parents=True, exist_ok=True)
    pytest_tool = PYTEST.format(light=light, heavy=heavy, airflow=airflow, spark=spark, slow_spark=slow_spark)
    told = "#!/bin/sh\necho {} $TEST_CLASS_ARCHIVE$*\n"
    tools = {"ruff": "#!/bin/sh\n", "mypy": "#!/bin/sh\n", "coverage": told.format("coverage"), "pytest": pytest_tool}
    tools["python"] = PYTHON
    for name, text in tools.items():
        (home / ".venv/bin" / name).write_text(text)
        (home / ".venv/bin" / name).chmod(0o755)
    return run(home, "bash", "bin/test.sh", *arguments)


def test_light_tests_run_in_several_processes_and_those_with_airflow_and_spark_beside_the_others(home: Path) -> None:
    light = f"{QUIET} -n 3 --ignore=tests/airflow --ignore=tests/spark -x a b -m not ({HEAVY} or {JVM})\n"
    apart, files = "--ignore=tests/unit --ignore=tests/tidy", "--dist loadfile"
    lanes = [
        f"{QUIET} -n 3 --dist loadfile -x a b -m ({HEAVY}) and not ({JVM}) and not extended\n",
        f"{QUIET} -n 0 {files} {apart} -x a b -m airflow and not extended\n",
        f"{QUIET} -n 2 {files} {apart} -x a b -m spark and (slow or process) and not airflow and not extended\n",
        f"{QUIET} -n 0 {files} {apart} -x a b -m spark and not (slow or process) and not airflow and not extended\n",
    ]
    whole = run_tests(home, "-x", "a b")
    assert whole.returncode == 0, whole
    everything = run_tests(home, "--all", "-x", "a b")
    for done in (whole, everything):
        assert all(part in done.stdout for part in (light, *lanes))
    extended = f"== extended tests\n{QUIET} -x a b -m extended\n"
    assert extended in everything.stdout.partition("== heavy tests: ")[2], "with nothing beside them"
    assert extended not in whole.stdout
    fast = run_tests(home, "--fast", "-x", "a b")
    assert light in fast.stdout
    assert "heavy" not in fast.stdout


def test_a_whole_run_builds_the_class_archive_first(home: Path) -> None:
    whole, selected = run_tests(home), run_tests(home, "-k", "slots")
    built = re.search(
        r"^== class archive\npython -m tests\.kit\.spark\.archive_build (\S+)$", whole.stdout, re.MULTILINE
    )
    assert built, whole.stdout
    assert not Path(built[1]).exists(), "it goes with the run"
    assert whole.stdout.index("== class archive") < whole.stdout.index("== heavy tests")
    assert "archive" not in selected.stdout


def test_a_run_without_a_selection_has_the_share_of_its_commit(home: Path) -> None:
    commit = "8" + "0" * 39
    (home / "git").mkdir()
    (home / "git/git").write_text(f"#!/bin/sh\necho {commit[:8]}\n")
    (home / "git/git").chmod(0o755)
    path = f'export PATH="{home}/git:$PATH"'
    for arguments, count in (((), 5), (("--all",), 0), (("-k", "slots"), 0)):
        done = run_tests(home, *arguments, environment=path)
        assert done.stdout.count(f"--share={int(commit[:8], 16) % SHARES} ") == count, arguments


def test_a_change_runs_the_tests_that_it_needs(home: Path) -> None:
    done = run_tests(home, "--changed", "main")
    assert done.returncode == 0, done
    light = f"{QUIET} -n 4 -m not ({HEAVY} or {JVM}) tests/unit/test_a.py tests/unit/test_c.py\n"
    heavy = f"{QUIET} -n 2 --dist loadfile -m ({HEAVY} or {JVM}) and not extended tests/process/test_b.py\n"
    assert f"== light tests\n{light}" in done.stdout
    assert f"== heavy tests\n{heavy}" in done.stdout
    assert "== changelog\npython -m tests.suite.changelog main\n" in done.stdout


def test_failures_and_the_time_of_all_runs_are_said_at_the_end(home: Path) -> None:
    done = run_tests(home, heavy=1)
    assert "== time of the slowest files\n20 s tests/unit/test_a.py\n" in done.stdout
    assert done.stdout.endswith("== time of tests, by folder\ntests/unit: 15 tests, 20 s\n")
    assert done.stderr.splitlines() == [*["FAILED tests/unit/test_a.py::test_it"] * 5, "Failed: heavy tests"]


def test_a_hunt_gets_all_arguments(home: Path) -> None:
    assert run_tests(home, "--repeat", "9", "--load", "4", "-k", "a b").stdout == (
        "python -m tests.suite.repeat 9 --load 4 -k a b\n"
    )


def test_coverage_is_of_the_light_tests_and_compared_with_the_floors(home: Path) -> None:
    done = run_tests(home, "--coverage")
    assert done.returncode == 0, done
    run_of = f"coverage run -m {QUIET} -n 3 --ignore=tests/airflow --ignore=tests/spark -m not ({HEAVY} or {JVM})\n"
    said = done.stdout.partition("== light tests\n")[2].splitlines(keepends=True)
    assert said[:2] == [run_of, "coverage combine --quiet\n"]
    assert said[2].startswith("coverage json --quiet -o ")
    assert said[3] == f"python -m tests.suite.floors {said[2].split()[-1]}\n"
    assert "heavy" not in done.stdout.replace(run_of, "")


def test_floors_are_not_compared_when_a_light_test_has_failed(home: Path) -> None:
    run_tests(home)
    (home / ".venv/bin/coverage").write_text("#!/bin/sh\necho coverage $*\nexit 1\n")
    done = run(home, "bash", "bin/test.sh", "--coverage")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "Failed: light tests")
    assert "floors" not in done.stdout


def test_what_is_wrong_with_types_is_said(home: Path) -> None:
    run_tests(home)
    (home / ".venv/bin/mypy").write_text("#!/bin/sh\necho mypy says what\nexit 1\n")
    done = run(home, "bash", "bin/test.sh", "--fast")
    assert "mypy says what\n" in done.stdout
    assert done.stderr.splitlines()[-1] == "Failed: mypy"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("light", "heavy", "airflow", "spark", "slow_spark", "said"),
    [
        (0, 0, 0, 0, 0, "All checks and tests passed."),
        (5, 0, 5, 5, 5, "All checks and tests passed."),
        (0, 5, 5, 5, 5, "All checks and tests passed."),
        (5, 5, 0, 5, 5, "All checks and tests passed."),
        (5, 5, 5, 0, 5, "All checks and tests passed."),
        (5, 5, 5, 5, 0, "All checks and tests passed."),
        (5, 5, 5, 5, 5, "Failed: no test is selected"),
        (1, 5, 5, 5, 5, "Failed: light tests"),
        (5, 2, 0, 0, 0, "Failed: heavy tests"),
        (0, 0, 1, 0, 0, "Failed: heavy tests"),
        (0, 0, 1, 0, 5, "Failed: heavy tests"),
        (0, 0, 0, 1, 0, "Failed: heavy tests"),
        (0, 0, 0, 0, 1, "Failed: heavy tests"),
        (0, 0, 5, 0, 1, "Failed: heavy tests"),
        (1, 1, 5, 5, 5, "Failed: light tests heavy tests"),
    ],
)
def test_a_selection_has_to_match_in_one_of_them(
    home: Path, light: int, heavy: int, airflow: int, spark: int, slow_spark: int, said: str
) -> None:
    done = run_tests(home, light=light, heavy=heavy, airflow=airflow, spark=spark, slow_spark=slow_spark)
    assert (done.stderr if "Failed" in said else done.stdout).splitlines()[-1] == said
    assert done.returncode == ("Failed" in said)


def test_an_interrupted_lane_is_a_failure(home: Path) -> None:
    assert run_tests(home, airflow=2).returncode == 1


@pytest.mark.slow
def test_without_a_uv_that_works_python_makes_it(home: Path) -> None:
    add_tool(home, "uv", "#!/bin/sh\nmkdir -p .venv/bin\nexit 2\n")
    add_python(home)
    (home / "requirements/base.txt").write_text("")
    done = ensure_environment(home, PIP_NO_INDEX="1")
    assert os.access(home / ".venv/bin/python", os.X_OK)
    assert "Making .venv failed" not in done.stderr


def test_options_are_told_as_lines_of_the_configuration(home: Path) -> None:
    options = ("-D", "rest.port=18081", "-Dtaskmanager.spark.conf.a=b=c", "-D", "security.ssl.rest.enabled=true")
    done = run(home, "bash", "-c", 'source bin/environment.sh; _as_configuration "$@"', "bash", *options)
    lines = ["rest.port: 18081", "taskmanager.spark.conf.a: b=c", "security.ssl.rest.enabled: true"]
    assert (done.returncode, done.stdout) == (0, "".join(f"{line}\n" for line in lines)), done.stderr

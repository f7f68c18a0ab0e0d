"""`flinklike migrate` from outside: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # no stubs installed
import pytest

from airflow_flinklike.cli.__main__ import main
from tests.kit.docs import ROOT
from tests.kit.host.command_line import Done

STYLES = Path(__file__).parent / "dags"
Run = Callable[..., Done]

SCHEMA = {
    "type": "object",
    "required": ["version", "assumptions", "summary", "environments", "files"],
    "additionalProperties": False,
    "properties": {
        "version": {"const": 1},
        "assumptions": {
            "type": "object",
            "required": ["start_seconds", "environment_idle_minutes"],
            "additionalProperties": {"type": "number"},
        },
        "summary": {
            "type": "object",
            "required": [
                "files",
                "problems",
                "places",
                "tasks",
                "is_at_least",
                "unscheduled_tasks",
                "unseen_scripts",
                "jvm_starts_per_day",
                "seconds_saved_per_day",
                "connections",
                "memory_bytes",
                "own_jvms",
                "tasks_of_largest_run",
            ],
            "properties": {
                "tasks": {"type": "object", "required": ["moves", "environment", "jar", "stays"]},
                "jvm_starts_per_day": {"type": "object", "required": ["before", "after"]},
                "is_at_least": {"type": "boolean"},
            },
        },
        "environments": {
            "type": "array",
            "items": {"type": "object", "required": ["key", "places", "tasks", "memory_bytes", "conf"]},
        },
        "files": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "problem", "changed", "written", "tasks", "advice", "others"],
                "properties": {
                    "tasks": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {
                                "line": {"type": "integer"},
                                "task_id": {"type": "string"},
                                "kind": {"type": "string"},
                                "count": {"type": ["integer", "null"]},
                                "dags": {"type": "array"},
                                "verdict": {"enum": ["moves", "environment", "jar", "stays"]},
                                "environments": {"type": "array", "items": {"type": ["string", "null"]}},
                                "reasons": {"type": "array", "items": {"type": "string"}},
                                "notes": {"type": "array", "items": {"type": "string"}},
                            },
                        },
                    }
                },
            },
        },
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The styles as DAG files."""
    directory = tmp_path / "dags"
    directory.mkdir()
    for style in STYLES.glob("*.dag"):
        (directory / f"{style.stem}.py").write_bytes(style.read_bytes())
    return directory


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run the command in the directory above the DAG files."""
    monkeypatch.chdir(tmp_path)

    def migrate(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["flinklike", "migrate", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Done(int(ended.value.code or 0), out, err)

    return migrate


def texts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_report_changes_nothing(run: Run, folder: Path) -> None:
    before = texts(folder)
    done = run("dags")
    assert done.code == 0
    assert "dags/33_owned_conf.py\n" in done.out
    assert "moves, in a Spark environment of its own: c88af642 (2 tasks share it)" in done.out
    assert "spark.local.dir is taken out of conf: it lies in the TaskManager's working directory" in done.out
    assert "stays\n           spark_conf spark.pyspark.python: a job cannot set it" in done.out
    assert "JVM starts a day: at least " in done.out
    assert ", spark_default (" in next(line for line in done.out.splitlines() if line.startswith("Connections that "))
    assert "at 13 s a start (--start-seconds)" in done.out
    assert texts(folder) == before


def test_the_report_as_json_has_its_schema(run: Run, folder: Path) -> None:
    done = run("dags", "--report", "json", "--start-seconds", "20")
    body = json.loads(done.out)
    jsonschema.validate(body, SCHEMA)
    starts = body["summary"]["jvm_starts_per_day"]
    assert body["summary"]["seconds_saved_per_day"] == pytest.approx(20 * (starts["before"] - starts["after"]))
    assert sum(body["summary"]["tasks"].values()) > 100
    assert [one["tasks"] for one in body["environments"] if one["key"].startswith("c88af642")] == [2]


def test_the_report_as_markdown_is_a_table(run: Run, folder: Path) -> None:
    (folder / "pipe.py").write_text(
        "from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator\n"
        "SparkSubmitOperator(task_id='a|b<c>', application='a.py')\n"
    )
    done = run("dags", "--report", "md")
    rows = [line for line in done.out.splitlines() if line.startswith("| dags/")]
    assert len(rows) > 60
    assert all(line.replace("\\|", "").count("|") == 7 for line in rows)
    assert any("a\\|b&lt;c>" in line for line in rows)


def test_write_moves_what_moves_and_nothing_the_second_time(run: Run, folder: Path) -> None:
    before = texts(folder)
    done = run("dags", "--write", "--report", "json")
    assert done.code == 0
    after = texts(folder)
    written = {Path(file["path"]).name for file in json.loads(done.out)["files"] if file["written"]}
    assert written == {name for name in before if before[name] != after[name]}
    assert "28_star_import.py" not in written
    again = run("dags", "--write", "--report", "json")
    assert not [file for file in json.loads(again.out)["files"] if file["written"] or file["changed"]]
    assert texts(folder) == after


def test_the_patch_is_what_write_does(run: Run, folder: Path, tmp_path: Path) -> None:
    classic = (folder / "01_classic_with.py").read_text()
    (folder / "marked.py").write_bytes(classic.encode("utf-8-sig"))
    (folder / "latin.py").write_bytes(f"# coding: latin-1\n\n# ä\n{classic}".encode("latin-1"))
    (folder / "windows.py").write_bytes(classic.replace("\n", "\r\n").encode())
    (folder / "no_end.py").write_bytes(
        (STYLES / "28_star_import.dag").read_bytes().replace(b"*", b"SparkSubmitOperator").rstrip()
    )
    before = texts(folder)
    assert run("dags", "--patch", "changes.patch").code == 0
    assert texts(folder) == before
    shown = run("dags/01_classic_with.py", "--patch", "-")
    assert shown.out.encode() in (tmp_path / "changes.patch").read_bytes()
    subprocess.run(["git", "apply", "-p1", "changes.patch"], cwd=tmp_path, check=True)
    patched = texts(folder)
    for name, content in before.items():
        (folder / name).write_bytes(content)
    run("dags", "--write")
    assert texts(folder) == patched


def test_a_file_that_cannot_be_read_is_a_line_and_all_others_are_done(run: Run, folder: Path) -> None:
    (folder / "old.py").write_text("from airflow.operators import LivyOperator\nprint 'x'\n")
    done = run("dags", "missing", "--write")
    assert done.code == 1
    assert "dags/old.py: it is no Python: line 2: " in done.out
    assert "missing: it cannot be read: No such file or directory\n" in done.out
    assert "FlinklikeSubmitOperator" in (folder / "01_classic_with.py").read_text()
    assert "old.py: it is no Python" in run("dags", "--patch", "-").err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Missing argument 'PATH...'"),
        (("dags", "--report", "xml"), "Invalid value for '--report'"),
        (("dags", "--conn-id", " "), "--conn-id is empty"),
        (("dags", "--start-seconds", "-1"), "Invalid value for '--start-seconds'"),
        (("dags", "--patch", "no/such/folder/x.patch"), "--patch no/such/folder/x.patch cannot be written"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: tuple[str, ...], sentence: str, run: Run, folder: Path) -> None:
    done = run(*arguments)
    assert done.code == 1
    assert sentence in done.err
    assert done.err.count("\n") == 1


def test_load_without_airflow_says_what_to_do(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow.dag_processing.dagbag", None)
    done = run("dags/01_classic_with.py", "--load")
    assert done.code == 1
    assert "is not installed here: run it where Airflow's workers run, or leave --load out" in done.err


def test_the_command_of_an_installation_needs_no_airflow_and_no_cluster(folder: Path) -> None:
    program = (
        "import sys; sys.argv = ['flinklike', 'migrate', sys.argv[1]]\n"
        "import airflow_flinklike.cli.__main__ as cli\n"
        "assert not [name for name in sys.modules if name.startswith('airflow_flinklike.migrate')]\n"
        "try:\n    cli.main()\n"
        "finally:\n    print(*sys.modules)\n"
    )
    command = [sys.executable, "-c", program, str(folder / "01_classic_with.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    *report, modules = done.stdout.splitlines()
    assert "     26  load_orders  SparkSubmitOperator  moves as it is" in report
    assert not {"airflow", "pyspark", "grpc"} & {*modules.split()}


def test_the_script_of_this_checkout(folder: Path) -> None:
    command = [str(ROOT / "bin" / "flinklike"), "migrate", str(folder / "22_subclass.py"), "--report", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["tasks"] == {"moves": 1, "environment": 0, "jar": 0, "stays": 1}

"""`flinklike run` and `explain`: the submitted job, the output, exit codes, and one sentence for each bad input."""

import json
import pickle
import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_flinklike.cli.attached import one_sentence
from runtime.common.spark_environments import SparkOffer
from runtime.common.states import JobStatus
from runtime.gateways.task_executor import LogStream
from runtime.jobgraph.graph import PickledCode, ScriptCode
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy, NoRestartStrategy
from tests.kit.control_plane.job_graphs import diamond
from tests.kit.host.command_line import RunCommand
from tests.kit.rest.fake_resource_manager import FakeResourceManager
from tests.kit.rest.fakes import FAILURE, JOB, FakeTaskExecutor
from tests.kit.rest.server import RestThread

PIPELINES = """
from airflow_flinklike import Pipeline

def sales(days, region="all", parallelism=1):
    pipeline = Pipeline("sales", parallelism=parallelism)
    read = pipeline.source("read", lambda ctx: None, splits=range(days))
    read.hash("day").apply("sum", lambda ctx, df: df, parallelism=2).gather().sink("report", lambda ctx, df: 1)
    return pipeline

built = sales(3)
number = 5
"""

IN_A_FILE = """
from airflow_flinklike import Pipeline
from rates_beside import RATE

def read(ctx):
    return RATE

def make(days, parallelism):
    from late_beside import NAME
    pipeline = Pipeline(NAME, parallelism=parallelism)
    pipeline.source("read", read, splits=range(days))
    return pipeline
"""

OWN_STRATEGY = """
own = Pipeline("own", restart_strategy="none")
own.source("read", lambda ctx: None)
"""


@pytest.fixture
def jobs(module: Callable[[str], str]) -> str:
    return module(PIPELINES)


def test_params_fill_arguments_and_the_job(flinklike: RunCommand, server: RestThread, jobs: str) -> None:
    done = flinklike(
        "run", f"{jobs}:sales", "--param", "days=4", "--param", "region=north", "--param", "x=[1]", "-p", "3"
    )
    graph = server.dispatcher.graph()
    assert done.code == 0, done.err
    assert graph.params == {"days": 4, "region": "north", "x": [1]}
    assert (graph.vertices[0].parallelism, graph.vertices[0].splits) == (3, (0, 1, 2, 3))
    assert server.dispatcher.submitted[0].client == "flinklike run"


WRITTEN = "hello from the task\n"
"""What every task of the fake cluster writes to its stdout; a job has two of them."""


def test_an_attached_run_prints_what_the_tasks_write_and_then_the_result(flinklike: RunCommand, jobs: str) -> None:
    done = flinklike("run", f"{jobs}:built")
    assert done.code == 0
    assert done.out.startswith(2 * WRITTEN)
    assert json.loads(done.out.removeprefix(2 * WRITTEN)) == {"rows": 3}
    submitted, first, second, finished = done.err.splitlines()
    assert "Job has been submitted with JobID" in submitted
    assert (first, second) == ("==> read", "==> write <b>")
    assert "FINISHED" in finished


def test_a_quiet_run_prints_the_result_only(flinklike: RunCommand, jobs: str) -> None:
    done = flinklike("run", "--quiet", f"{jobs}:built")
    assert (done.code, json.loads(done.out)) == (0, {"rows": 3})
    (line,) = done.err.splitlines()
    assert "FINISHED" in line


def test_with_json_the_output_of_tasks_goes_to_stderr(flinklike: RunCommand, jobs: str) -> None:
    done = flinklike("run", "--json", f"{jobs}:built")
    assert (done.code, json.loads(done.out)["result"]) == (0, {"rows": 3})
    assert done.err.count(WRITTEN) == 2


def test_output_that_is_gone_does_not_fail_the_run(
    flinklike: RunCommand, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeResourceManager, "task_managers", lambda _self: ())
    done = flinklike("run", f"{jobs}:built")
    assert (done.code, json.loads(done.out)) == (0, {"rows": 3})
    assert "The output of read cannot be read any more: TaskManager tm-1 is not registered" in done.err


def test_options_may_stand_behind_a_pipeline(flinklike: RunCommand, server: RestThread, jobs: str) -> None:
    done = flinklike("run", f"{jobs}:sales", "-d", "--param", "days=1", "--json", "--job-id", JOB)
    assert (done.code, json.loads(done.out)) == (0, {"job_id": JOB, "is_new": True})
    assert server.dispatcher.submitted[0].job_id == JOB


def test_a_detached_run_returns_at_once(flinklike: RunCommand, server: RestThread, jobs: str) -> None:
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.RUNNING))
    done = flinklike("run", "-d", "--job-id", JOB, f"{jobs}:built")
    again = flinklike("run", "-d", "--job-id", JOB, f"{jobs}:built")
    assert (done.code, done.out) == (0, f"Job has been submitted with JobID {JOB}\n")
    assert again.out == f"Job has been submitted with JobID {JOB} before\n"


def test_what_follows_a_script_is_the_scripts(flinklike: RunCommand, server: RestThread, tmp_path: Path) -> None:
    for name in ("etl.py", "lib.py", "data.csv", "more.csv", "third.csv", "env.zip"):
        (tmp_path / name).write_text("pass")
    options = ["--py-files", "lib.py", "--files", "data.csv,more.csv", "--files", "third.csv"]
    options += ["--archives", "env.zip#env", "--name", "nightly"]
    options += ["--conf", "spark.sql.shuffle.partitions=8", "--conf", "spark.sql.session.timeZone=UTC"]
    options += ["--secret", "DB_PASSWORD", "--secret", "KEY"]
    done = flinklike("run", *options, "etl.py", "2026-11-01", "--json", "-p", "7")
    assert done.code == 0, done.err
    graph = server.dispatcher.graph()
    code = graph.vertices[0].operators[0].code
    assert isinstance(code, ScriptCode)
    assert code.args == ("2026-11-01", "--json", "-p", "7")
    assert graph.spark_conf == {"spark.sql.shuffle.partitions": "8", "spark.sql.session.timeZone": "UTC"}
    assert graph.secrets == ("DB_PASSWORD", "KEY")
    names = [artifact.name for artifact in (*graph.py_files, *graph.files, *graph.archives)]
    tables = ("data.csv", "more.csv", "third.csv")
    assert (graph.name, names, graph.params) == ("nightly", ["lib.py", *tables, "env.zip#env"], {})


def test_who_names_his_token_behind_a_script_is_told(flinklike: RunCommand, server: RestThread, tmp_path: Path) -> None:
    """A script may have such an option too. A user who meant flinklike's submits as another principal."""
    (tmp_path / "etl.py").write_text("print(1)")
    done = flinklike("run", "-d", "etl.py", "5", "--token-file", "mine", "--namespace=team-a", "--day", "1")
    assert done.code == 0
    assert "note: --namespace, --token-file behind etl.py is for the script" in done.err
    assert "note:" not in flinklike("run", "-d", "--namespace", "default", "etl.py", "--day", "1").err


def test_what_is_no_python_is_refused(flinklike: RunCommand, server: RestThread, tmp_path: Path) -> None:
    (tmp_path / "nightly.sql").write_text("select 1")
    done = flinklike("run", "nightly.sql")
    assert (done.code, done.out) == (1, "")
    assert (
        "'nightly.sql' is neither a Python script nor a jar: run its statements from one, with spark.sql()" in done.err
    )
    assert not server.dispatcher.submitted


def test_a_job_graph_from_a_file(flinklike: RunCommand, server: RestThread, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_bytes(diamond().canonical_json())
    assert flinklike("run", "graph.json", "--param", "day=3").code == 0
    assert server.dispatcher.graph() == diamond().model_copy(update={"params": {"day": 3}})


def test_a_failed_job_is_1_with_the_root_cause_first(flinklike: RunCommand, server: RestThread, jobs: str) -> None:
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.FAILED))
    done = flinklike("run", "-q", f"{jobs}:built")
    lines = done.err.splitlines()
    assert (done.code, done.out) == (1, "")
    assert lines[0:2] == ["ValueError: no such column", "Traceback ..."]
    assert re.fullmatch(r"Job \w+ FAILED after [\d.]+ s: ValueError: no such column", lines[-1])


def test_control_characters_of_an_error_do_not_reach_the_terminal(
    flinklike: RunCommand, server: RestThread, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = "\x1b[31mred\x00 \x9b2J \x7f ü"
    failure = replace(FAILURE, message=f"{says}\nmore {says}", stack_trace=f"over\rTraceback ...\r\nValueError: {says}")
    monkeypatch.setattr("tests.kit.rest.fakes.FAILURE", failure)
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.FAILED))
    monkeypatch.setattr(FakeTaskExecutor, "text", b"\x1b[1mits own stdout\x1b[0m\n")
    shown = "\\x1b[31mred\\x00 \\x9b2J \\x7f ü"
    done = flinklike("run", "--job-id", JOB, f"{jobs}:built")
    assert done.out.startswith("\x1b[1mits own stdout\x1b[0m\n"), "what a job writes passes as it is"
    assert "\x1b" not in done.err
    begin, stack, last = done.err.splitlines()[-3:]
    assert (begin, stack) == ("over\\x0dTraceback ...", f"ValueError: {shown}")
    assert last.endswith(f" s: ValueError: {shown}")
    info = flinklike("info", JOB)
    assert f"ValueError: {shown}" in info.out
    for text in (done.err, info.out):
        assert {one for one in text if unicodedata.category(one) == "Cc"} == {"\n"}


def test_a_stack_that_the_tasks_have_shown_is_not_repeated(
    flinklike: RunCommand, server: RestThread, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.FAILED))
    shown = f"working\n{FAILURE.stack_trace}\n"
    monkeypatch.setattr(FakeTaskExecutor, "text", shown.encode())
    monkeypatch.setattr(FakeTaskExecutor, "stream", LogStream.STDERR)
    done = flinklike("run", f"{jobs}:built")
    assert done.out == ""
    assert done.err.count("Traceback ...") == 2, "each of the two tasks has written it"
    assert done.err.splitlines()[-1].endswith(": ValueError: no such column")


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        ({"class": "a.b.ValueError", "message": "\n  no such day\nmore"}, "ValueError: no such day"),
        ({"class": "MemoryError", "message": ""}, "MemoryError"),
        ({"class": "AssertionError", "message": "(etl.py, line 2)"}, "AssertionError (etl.py, line 2)"),
        ({}, "Error"),
        ({"class": "X", "message": "y" * 9_999}, f"X: {'y' * 497} ..."),
        ({"class": "py4j.protocol.Py4JJavaError", "message": "no driver (a.B)\na.C: c"}, "no driver (a.B)"),
        ({"class": "py4j.protocol.Py4JError", "message": ""}, "Py4JError"),
        ({"class": "pyspark.errors.exceptions.captured.PythonException", "message": "KeyError: 3"}, "KeyError: 3"),
        ({"class": "runtime.taskexecutor.slot_process.causes.TaskError", "message": "no x"}, "TaskError: no x"),
    ],
)
def test_the_cause_of_a_failure_is_one_sentence(failure: dict[str, str], sentence: str) -> None:
    assert one_sentence(failure) == sentence


@pytest.mark.parametrize(
    ("failure", "beside", "hint"),
    [
        (
            ("ModuleNotFoundError", "No module named 'helper'"),
            "helper.py",
            "send it with --py-files 'my pkg/helper.py'",
        ),
        (
            ("a.b.PythonException", "ModuleNotFoundError: No module named 'helper' (etl.py, line 3)"),
            "helper/__init__.py",
            (
                "send it with --py-files 'my pkg/helper.zip', which "
                "python3 -m zipfile -c 'my pkg/helper.zip' 'my pkg/helper' makes"
            ),
        ),
        (("ModuleNotFoundError", "No module named 'helper'"), "other.py", ""),
        (("ModuleNotFoundError", "No module named 'helper.sub'"), "helper/__init__.py", ""),
        (("ValueError", "No module named 'helper'"), "helper.py", ""),
    ],
)
def test_a_module_that_was_left_beside_the_script_is_named(
    flinklike: RunCommand,
    server: RestThread,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: tuple[str, str],
    beside: str,
    hint: str,
) -> None:
    for name in ("etl.py", beside):
        path = tmp_path / "my pkg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("pass")
    class_name, message = failure
    monkeypatch.setattr("tests.kit.rest.fakes.FAILURE", replace(FAILURE, class_name=class_name, message=message))
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.FAILED))
    last = flinklike("run", "my pkg/etl.py").err.splitlines()[-1]
    assert message in last
    assert last.endswith(hint or message)
    assert ("was not sent" in last) is bool(hint)


@pytest.mark.parametrize(
    ("failure", "hint"),
    [
        (("FileNotFoundError", "[Errno 2] No such file or directory: 'in/lookup.csv' (etl.py, line 1)"), True),
        (
            (
                "AnalysisException",
                "[PATH_NOT_FOUND] Path does not exist: file:{work}/in/lookup.csv. X",
            ),
            True,
        ),
        (("FileNotFoundError", "[Errno 2] No such file or directory: 'in/other.csv'"), False),
        (("FileNotFoundError", "[Errno 2] No such file or directory: '/etc/passwd'"), False),
    ],
)
def test_a_file_that_was_left_beside_the_script_is_named(
    flinklike: RunCommand,
    server: RestThread,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: tuple[str, str],
    *,
    hint: bool,
) -> None:
    (tmp_path / "in").mkdir()
    for name in ("etl.py", "in/lookup.csv"):
        (tmp_path / name).write_text("pass")
    class_name, message = failure[0], failure[1].replace("{work}", f"{tmp_path}/jobs/{'a' * 32}/work")
    monkeypatch.setattr("tests.kit.rest.fakes.FAILURE", replace(FAILURE, class_name=class_name, message=message))
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.FAILED))
    last = flinklike("run", "etl.py").err.splitlines()[-1]
    sent = (
        "in/lookup.csv is here, and the script runs in a directory of its own: send it with --files in/lookup.csv, or"
    )
    sent = f"{sent} give it an absolute path"
    assert last.endswith(sent) is hint


def test_a_failed_job_as_json(flinklike: RunCommand, server: RestThread, jobs: str) -> None:
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.FAILED))
    done = flinklike("run", "--json", f"{jobs}:built")
    document = json.loads(done.out)
    assert (done.code, document["status"], document["failure"]["message"]) == (1, "FAILED", "no such column")


def test_a_canceled_job_is_1(flinklike: RunCommand, server: RestThread, jobs: str) -> None:
    server.do(lambda: setattr(server.dispatcher, "next_status", JobStatus.CANCELED))
    done = flinklike("run", f"{jobs}:built")
    assert (done.code, "was CANCELED" in done.err) == (1, True)


def test_explain(flinklike: RunCommand, jobs: str) -> None:
    done = flinklike("explain", f"{jobs}:sales", "--param", "days=2", "-p", "2")
    assert done.code == 0
    assert "read  (parallelism 2, 2 splits)" in done.out
    assert "read  ==HASH on day==>  sum" in done.out
    document = json.loads(flinklike("explain", "--json", f"{jobs}:built").out)
    assert [chain["vertex"] for chain in document["chains"]] == ["read", "sum", "report"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "nowhere"], "'nowhere': expected module:pipeline, file.py:pipeline, a script"),
        (["run", "nowhere:x"], "'nowhere:x': no module named 'nowhere' can be imported here"),
        (["run", "no/where.py:x"], "'no/where.py:x': there is no file"),
        (["run", "./{jobs}:built"], "'./{jobs}' is no module; a file is written 'path/file.py:name'"),
        (["run", "{jobs}.py:"], "is not a reference: expected 'package.module:name' or 'path/file.py:name'"),
        (["run", "{jobs}.py:missing"], "'{jobs}.py:missing': {jobs}.py has no 'missing'"),
        (["run", "{jobs}.py:sales"], "missing a required argument: 'days'"),
        (["run", "{jobs}.py:built", "more"], "is not a script, so it takes no arguments after the target"),
        (["run", "{jobs}:missing"], "'{jobs}:missing': {jobs} has no 'missing'"),
        (
            ["run", "{jobs}:number"],
            "'{jobs}:number' gave a value of type int: expected a Pipeline, a script_job or a JobGraph",
        ),
        (["run", "{jobs}:sales"], "missing a required argument: 'days'"),
        (["run", "{jobs}:sales", "--param", "days"], "--param 'days': expected key=value"),
        (["run", "{jobs}:sales", "--param", "days=x"], "TypeError: 'str' object cannot be interpreted as an integer"),
        (["run", "{jobs}:built", "-p", "2"], "is built already; make it a function that takes `parallelism`"),
        (["run", "{jobs}:built", "more"], "is not a script, so it takes no arguments after the target"),
        (
            ["run", "--conf", "a=b", "--name", "n", "{jobs}:built"],
            "so it takes no --conf (or option that stands for it), --name",
        ),
        (["run", "--secret", "KEY", "{jobs}:built"], "is not a script, so it takes no --secret"),
        (["run", "--secret", "KEY=hush", "{jobs}.py"], "'KEY' has a value here: values are files of the TaskManagers"),
        (["run", "--job-id", "x", "{jobs}:built"], "'x' is not a job id: expected 32 lower-case hex digits"),
        (["run", "etl.py"], "script 'etl.py' does not exist"),
        (["run", "--conf", "a", "{jobs}.py"], "--conf 'a': expected key=value"),
        (["run", "-p", "2", "{jobs}.py"], "-p: a script sets its own"),
        (["run", "--resources", "4g", "{jobs}.py"], "--resources: '4g': expected key=value with cpu_cores, memory"),
        (["run", "--resources", "memory=4gigs", "{jobs}.py"], "--resources: memory of resources is '4gigs': expected"),
        (["run", "--resources", "memory=4g,memory=5g", "{jobs}.py"], "--resources: memory is given twice"),
        (["run", "--resources", "memory=4g", "{jobs}:built"], "is not a script, so it takes no --resources"),
        (
            ["run", "--param", "a=1", "{jobs}.py"],
            "is a script, which takes no --param",
        ),
        (["run", "graph.json"], "graph.json cannot be read: No such file or directory"),
        (["run", "--files", "gone.csv", "{jobs}.py"], "file 'gone.csv' does not exist"),
        (["explain", "nowhere:x"], "no module named 'nowhere'"),
    ],
)
def test_bad_input_is_one_sentence(flinklike: RunCommand, jobs: str, arguments: list[str], sentence: str) -> None:
    done = flinklike(*(one.format(jobs=jobs) for one in arguments))
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("flinklike: ")
    assert done.err.count("\n") == 1
    assert sentence.format(jobs=jobs) in done.err


def test_a_pipeline_in_a_file_is_built_with_what_lies_beside_it(
    flinklike: RunCommand, server: RestThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "far away"
    folder.mkdir()
    (folder / "rates_beside.py").write_text("RATE = 3\n")
    (folder / "late_beside.py").write_text("NAME = 'late'\n")
    (folder / "daily-sales.py").write_text(IN_A_FILE)
    before = list(sys.path)
    done = flinklike("run", f"{folder}/daily-sales.py:make", "-p", "2", "--param", "days=4", "-d")
    assert done.code == 0, done.err
    graph = server.dispatcher.graph()
    (vertex,) = graph.vertices
    assert (graph.name, vertex.parallelism, vertex.splits) == ("late", 2, (0, 1, 2, 3))
    assert set(sys.path) - set(before) <= {str(tmp_path)}, "its folder is forgotten"
    code = vertex.operators[0].code
    assert isinstance(code, PickledCode)
    for name in ("daily-sales", "rates_beside", "late_beside"):
        monkeypatch.delitem(sys.modules, name)
    assert pickle.loads(code.payload())(None) == 3, "it needs no module of the client's"


@pytest.mark.parametrize("name", ["json", "daily"])
def test_a_file_may_have_the_name_of_a_module(
    flinklike: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "daily", json)
    file = tmp_path / f"{name}.py"
    file.write_text(PIPELINES)
    for _ in range(2):
        assert flinklike("explain", f"{file}:built").code == 0
    assert sys.modules[name] is json
    (loaded,) = [one for one, module in sys.modules.items() if getattr(module, "__file__", "") == str(file)]
    del sys.modules[loaded]


def test_an_error_in_the_users_module_names_its_line(flinklike: RunCommand, module: Callable[[str], str]) -> None:
    broken, unreadable = module("import os\nos.no_such_name\n"), module("def (\n")
    done = flinklike("run", f"{broken}:x")
    assert done.code == 1
    assert f"{broken}.py, line 2: AttributeError: module 'os' has no attribute 'no_such_name'" in done.err
    assert f"({unreadable}.py, line 1)" in flinklike("run", f"{unreadable}:x").err
    misspelled = module("from airflow_flinklike import Pipeline\n\nPipeline('p', checkpoint_nam='x')\n")
    done = flinklike("run", f"{misspelled}:x")
    assert f"{misspelled}.py, line 3: TypeError: job 'p' got an unexpected keyword" in done.err, done.err
    assert "did you mean 'checkpoint_name'?" in done.err
    wrong = module("from airflow_flinklike import ResourceSpec\n\nResourceSpec(memory_bytes='4g')\n")
    assert f"{wrong}.py, line 3: ValidationError: " in flinklike("run", f"{wrong}:x").err


def test_options_of_spark_submit_that_stand_for_conf(
    flinklike: RunCommand, server: RestThread, jobs: str, tmp_path: Path
) -> None:
    properties = tmp_path / "spark-defaults.conf"
    properties.write_text("spark.driver.memory 1g\nspark.x from-file\nspark.y from-file\n")
    options = ["--driver-memory", "3g", "--properties-file", str(properties), "--conf", "spark.driver.memory=2g"]
    options += ["--conf", "spark.y=from-conf", "--packages=a:b:1,c:d:2", "--name", "--queue"]
    assert flinklike("run", "-d", "--job-id", JOB, *options, f"{jobs}.py", "--driver-memory", "9g").code == 0
    graph = server.dispatcher.graph()
    assert graph.name == "--queue", "the value of an option is no option"
    assert graph.spark_conf == {
        "spark.driver.memory": "3g",
        "spark.x": "from-file",
        "spark.y": "from-conf",
        "spark.jars.packages": "a:b:1,c:d:2",
    }
    (operator,) = graph.vertices[0].operators
    assert isinstance(operator.code, ScriptCode)
    assert operator.code.args == ("--driver-memory", "9g")


def test_other_settings_of_a_properties_file_are_told_and_ignored(
    flinklike: RunCommand, server: RestThread, jobs: str, tmp_path: Path
) -> None:
    (tmp_path / "own.conf").write_text("spark.x 1\nmine 2\n")
    done = flinklike("run", "-d", "--properties-file", str(tmp_path / "own.conf"), f"{jobs}.py")
    assert done.code == 0
    assert "own.conf: ignored, as none of Spark's: mine" in done.err
    assert server.dispatcher.graph().spark_conf == {"spark.x": "1"}


def test_a_refused_job_is_one_sentence_with_all_problems(flinklike: RunCommand, server: RestThread, jobs: str) -> None:
    server.do(lambda: setattr(server.fakes.resource_manager, "offers", [SparkOffer()]))
    done = flinklike("run", "--conf", "spark.jars=a.jar", "--executor-memory", "4g", f"{jobs}.py")
    assert done.code == 1
    assert "--conf spark.executor.memory: static, and no TaskManager offers '4g'" in done.err
    assert "--conf spark.jars: static" in done.err
    assert "spark_conf" not in done.err, "a user of the command line has written --conf"
    done = flinklike("run", "--executor-memory", "4gigs", f"{jobs}.py")
    assert (done.code, "'4gigs': expected a size, such as 3g or 1500m" in done.err) == (1, True), done.err


def test_a_taken_id_is_one_sentence(flinklike: RunCommand, jobs: str) -> None:
    flinklike("run", "-d", "--job-id", JOB, f"{jobs}:built")
    done = flinklike("run", "-d", "--job-id", JOB, f"{jobs}:sales", "--param", "days=9")
    assert (done.code, done.err) == (1, "flinklike: job id is taken\n")


@pytest.mark.parametrize("target", ["pipeline", "script"])
def test_a_restart_strategy_wins_over_the_jobs_own(
    flinklike: RunCommand, server: RestThread, module: Callable[[str], str], tmp_path: Path, target: str
) -> None:
    named = f"{module(PIPELINES + OWN_STRATEGY)}:own"
    script = tmp_path / "etl.py"
    script.write_text("print(1)")
    what = named if target == "pipeline" else str(script)
    done = flinklike("run", "-d", "--restart-strategy", "fixeddelay,attempts=5", what)
    assert done.code == 0, done.err
    assert server.dispatcher.graph().restart_strategy == FixedDelayRestartStrategy(attempts=5)


def test_labels_hold_for_all_tasks_of_the_job(flinklike: RunCommand, server: RestThread, jobs: str) -> None:
    done = flinklike("run", "-d", "--label", "zone=b", "--label", "gpu=a100", f"{jobs}:built")
    assert done.code == 0, done.err
    assert {vertex.resources.labels for vertex in server.dispatcher.graph().vertices} == {("gpu=a100", "zone=b")}
    wrong = flinklike("run", "-d", "--label", "gpu", f"{jobs}:built")
    assert wrong.code == 1
    assert "--label: 'gpu' is no label" in wrong.err


@pytest.mark.parametrize("text", ["restart", "final", "final-when-exclusive"])
def test_user_failures_are_the_jobs_own_choice(flinklike: RunCommand, server: RestThread, jobs: str, text: str) -> None:
    assert flinklike("run", "-d", "--user-failures", text, f"{jobs}:built").code == 0
    assert server.dispatcher.graph().user_failures == text


def test_other_words_about_user_failures_are_refused(flinklike: RunCommand, jobs: str) -> None:
    done = flinklike("run", "--user-failures", "sometimes", f"{jobs}:built")
    assert (done.code, "'sometimes': expected one of final-when-exclusive, restart, final" in done.err) == (1, True)


def test_options_of_the_cluster_that_a_job_has_for_itself(flinklike: RunCommand, server: RestThread, jobs: str) -> None:
    options = ("-D", "execution.checkpointing.interval=10 s", "-Dexecution.checkpointing.num-retained=3")
    assert flinklike("run", "-d", *options, f"{jobs}:built").code == 0
    assert server.dispatcher.graph().configuration == {
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.num-retained": "3",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("execution.checkpointing.interval", "expected key=value"),
        ("execution.checkpointing.interval=soon", "'soon' is not valid: expected a duration"),
        ("rest.port=8081", "'rest.port' is the cluster's, not a job's; a job may set execution.batch.adaptive."),
        ("slotmanager.queue.a.weight=2", "'slotmanager.queue.a.weight' is the cluster's, not a job's; a job may set"),
        ("nonsense.option=3", "'nonsense.option' is no option"),
    ],
)
def test_other_options_are_refused(flinklike: RunCommand, jobs: str, text: str, says: str) -> None:
    done = flinklike("run", "-D", text, f"{jobs}:built")
    assert (done.code, says in done.err) == (1, True), done.err


def test_an_option_that_decides_nothing_is_worth_a_note(flinklike: RunCommand, jobs: str) -> None:
    done = flinklike(
        "run", "-d", "-D", "execution.batch.adaptive.skewed-factor=3", f"{jobs}:sales", "--param", "days=2", "-p", "2"
    )
    assert done.code == 0, done.err
    assert "note: execution.batch.adaptive.skewed-factor: without effect, as each vertex" in done.err


def test_without_the_option_a_job_keeps_its_own(
    flinklike: RunCommand, server: RestThread, module: Callable[[str], str]
) -> None:
    assert flinklike("run", "-d", f"{module(PIPELINES + OWN_STRATEGY)}:own").code == 0
    assert server.dispatcher.graph().restart_strategy == NoRestartStrategy()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("always", "expected one of none, fixed-delay"),
        ("fixed-delay,tries=5", "'tries=5' sets no field of it, but: attempts, delay_seconds"),
        ("fixed-delay,attempts=many", "attempts 'many': Input should be a valid integer"),
        ("fixed-delay,attempts=-1", "attempts is -1, it must be between 0 and"),
    ],
)
def test_a_restart_strategy_that_is_none_is_said(
    flinklike: RunCommand, server: RestThread, jobs: str, text: str, says: str
) -> None:
    done = flinklike("run", "--restart-strategy", text, f"{jobs}:built")
    assert (done.code, says in done.err) == (1, True), done.err
    assert not server.dispatcher.submitted


def test_the_queue_and_the_priority_of_a_job(flinklike: RunCommand, server: RestThread, jobs: str) -> None:
    options = ["--queue", "etl", "--priority", "-7"]
    assert flinklike("run", "-d", "--job-id", JOB, *options, f"{jobs}.py", "--queue", "of-the-script").code == 0
    asked = server.dispatcher.submitted[-1]
    assert (asked.queue, asked.priority) == ("etl", -7)
    assert "spark.yarn.queue" not in server.dispatcher.graph().spark_conf
    refused = flinklike("run", "-d", "--queue", "no such", f"{jobs}.py")
    assert (refused.code, "is not a queue" in refused.err) == (1, True), refused.err
    assert flinklike("run", "-d", "--priority", str(1 << 31), f"{jobs}.py").code == 1
    unset = flinklike("run", "-d", "--queue", "", f"{jobs}.py")
    assert (unset.code, "the name is empty" in unset.err) == (1, True), unset.err

"""Files of a job, script jobs and function jobs."""

import hashlib
import importlib.util
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_flinklike import Pipeline, function_job, jar_job, script_job
from airflow_flinklike.api.artifacts import ArtifactCollector
from airflow_flinklike.api.function import FunctionCall, bind_call
from airflow_flinklike.exceptions import JobCanceledError, JobFailedError, LocalClusterError, PipelineError
from runtime.jobgraph.graph import INLINE_BYTES_MAX, Artifact, OperatorKind, PickledCode, ScriptCode
from runtime.jobgraph.parsing import parse_job_graph

LARGE = b"x" * (INLINE_BYTES_MAX + 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in {"etl.py": b"pass", "lib.zip": b"PK", "a.csv": b"1", "env.tar.gz": LARGE}.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_a_script_job_holds_what_spark_submit_would_take(folder: Path) -> None:
    job = script_job(
        folder / "etl.py",
        args=["--day", 5],
        conf={"spark.sql.shuffle.partitions": 2},
        py_files=f"{folder}/lib.zip",
        files=[folder / "a.csv"],
        archives=[f"{folder}/env.tar.gz#env"],
        name="nightly",
    )
    program = job.build()
    graph = program.graph
    vertex = graph.vertices[0]
    assert graph.name == "nightly"
    assert (vertex.name, vertex.parallelism, vertex.operators[0].kind) == ("etl.py", 1, OperatorKind.SCRIPT)
    assert vertex.is_exclusive(graph)
    code = vertex.operators[0].code
    assert isinstance(code, ScriptCode)
    assert (code.args, code.script.inline_bytes()) == (("--day", "5"), b"pass")
    assert [a.name for a in graph.py_files + graph.files + graph.archives] == ["lib.zip", "a.csv", "env.tar.gz#env"]
    assert list(program.uploads) == [hashlib.sha256(LARGE).hexdigest()]
    assert graph.archives[0].is_pending


def test_files_may_be_given_by_a_generator_and_built_twice(folder: Path) -> None:
    job = script_job(folder / "etl.py", py_files=folder.glob("*.py"), files=folder / "a.csv")  # type: ignore[arg-type]  # one path is meant as it is
    for graph in (job.job_graph(), job.job_graph()):
        assert [a.name for a in graph.py_files + graph.files] == ["etl.py", "a.csv"]


def test_files_in_the_conf_are_those_of_the_options(folder: Path) -> None:
    conf = {
        "spark.submit.pyFiles": f"{folder}/lib.zip, {folder}/etl.py",
        "spark.files": f"file:{folder}/a.csv#in.csv",
        "spark.archives": f"{folder}/env.tar.gz#env",
        "spark.my.key": "1",
    }
    graph = script_job(folder / "etl.py", conf=conf).job_graph()
    assert [a.name for a in graph.py_files] == ["lib.zip", "etl.py"]
    assert [a.name for a in graph.files + graph.archives] == ["a.csv#in.csv", "env.tar.gz#env"]
    assert graph.spark_conf == {"spark.my.key": "1"}


def test_the_name_is_that_of_the_conf_where_no_other_is_given(folder: Path) -> None:
    conf = {"spark.app.name": "by conf"}
    assert script_job(folder / "etl.py", conf=conf).name == "by conf"
    assert script_job(folder / "etl.py", conf=conf, name="nightly").name == "nightly"
    assert script_job(folder / "etl.py").name == "etl.py"


def test_an_option_counts_alone_and_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As spark-submit does."""
    conf = {"spark.submit.pyFiles": "/no/such.py", "spark.files": f"{folder}/a.csv"}
    graph = script_job(folder / "etl.py", conf=conf, py_files=[folder / "lib.zip"]).job_graph()
    assert [a.name for a in graph.py_files + graph.files] == ["lib.zip", "a.csv"]
    assert "spark.submit.pyFiles is not used" in caplog.text


def test_a_file_in_the_conf_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(PipelineError, match=r"py-file '/no/such\.py' does not exist"):
        script_job(folder / "etl.py", conf={"spark.submit.pyFiles": "/no/such.py"}).build()


def test_spark_reads_urls_in_the_conf_of_a_java_application(folder: Path) -> None:
    (folder / "app.jar").write_bytes(b"PK")
    conf = {"spark.files": f"s3a://b/c.csv,{folder}/a.csv"}
    graph = jar_job(folder / "app.jar", main_class="a.B", conf=conf).job_graph()
    assert ([a.name for a in graph.files], graph.spark_conf) == (["a.csv"], {"spark.files": "s3a://b/c.csv"})


def test_secrets_are_names(folder: Path) -> None:
    for given in (["B", "a.b-C_1"], "B,a.b-C_1", iter(["B", "a.b-C_1"])):
        job = script_job(folder / "etl.py", secrets=given)
        assert [job.job_graph().secrets, job.job_graph().secrets] == [("B", "a.b-C_1")] * 2
    assert function_job(lambda: 1, secrets=["B"]).job_graph().secrets == ("B",)
    pipeline = Pipeline("p", secrets=["B"])
    pipeline.source("a", lambda ctx: 1)
    assert pipeline.job_graph().secrets == ("B",)
    with pytest.raises(PipelineError) as caught:
        script_job(folder / "etl.py", secrets=["../x", "1", "A", "A", "KEY=hush"]).build()
    assert len(caught.value.problems) == 4
    assert "hush" not in str(caught.value)


def test_files_may_have_an_alias_as_archives_have(folder: Path) -> None:
    graph = script_job(folder / "etl.py", files=[f"{folder}/a.csv#b.csv", f"{folder}/a.csv"]).job_graph()
    assert [artifact.name for artifact in graph.files] == ["a.csv#b.csv", "a.csv"]
    with pytest.raises(PipelineError, match=r"two files or archives would be 'b\.csv'"):
        script_job(folder / "etl.py", files=f"{folder}/a.csv#b.csv,{folder}/etl.py#b.csv").build()


def test_the_name_of_a_script_job_is_that_of_its_file(folder: Path) -> None:
    assert script_job(folder / "etl.py").job_graph().name == "etl.py"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"wheels": ["s3://bucket/lib.whl"]}, "only local files can be sent along"),
        ({"files": ["s3://bucket"]}, "file 's3://bucket' names no file"),
        ({"files": ["http://[::1/a.csv"]}, r"file 'http://\[::1/a.csv' is no URL: Invalid IPv6 URL"),
        ({"files": ["http://host:abc/a.csv"]}, "is no URL: Port could not be cast to integer"),
        (
            {"files": ["http://me:secret@host/a.csv"]},
            r"file 'host/a.csv': expected http\(s\)://host/path, without a user",
        ),
        ({"files": ["http:/a/a.csv"]}, r"expected http\(s\)://host/path"),
        ({"py_files": ["s3://bucket/lib.tar"]}, r"expected a file ending in \.py, \.zip, \.egg, \.whl"),
        ({"files": ["missing.csv"]}, "file 'missing.csv' does not exist"),
        (
            {"files": ["/x/*.csv"]},
            r"^file '/x/\*\.csv': patterns are not taken: name each file, or give an archive of them$",
        ),
        ({"py_files": ["/x/mod_?.py"]}, r"py-file '/x/mod_\?\.py': patterns are not taken: name each file"),
        ({"archives": ["/x/[ab].zip#env"]}, r"archive '/x/\[ab\]\.zip': patterns are not taken"),
        ({"jars": ["/x/*.jar"]}, r"jar '/x/\*\.jar': patterns are not taken"),
        ({"files": ["."]}, "is a directory"),
        ({"py_files": ["{folder}/a.csv"]}, r"expected a file ending in \.py, \.zip, \.egg, \.whl"),
        ({"archives": ["{folder}/a.csv"]}, "expected a file ending in"),
        ({"archives": ["{folder}/lib.zip#../x"]}, "the name must be a plain file name"),
        ({"files": ["{folder}/a.csv#../x"]}, "the name must be a plain file name"),
        ({"files": ["{folder}/a.csv", "{folder}/a.csv"]}, "two files or archives would be 'a.csv'"),
    ],
)
def test_files_that_cannot_travel(folder: Path, given: dict[str, list[str]], expected: str) -> None:
    options: Any = {key: [one.format(folder=folder) for one in value] for key, value in given.items()}
    with pytest.raises(PipelineError, match=expected):
        script_job(folder / "etl.py", **options).build()


def test_a_script_that_does_not_exist() -> None:
    with pytest.raises(PipelineError, match=r"script .nope\.py. does not exist"):
        script_job("nope.py").job_graph()


def test_file_urls_are_local(folder: Path) -> None:
    assert script_job(f"file://{folder}/etl.py").job_graph().vertices[0].name == "etl.py"


def test_a_large_file_is_read_again_when_it_is_sent(folder: Path) -> None:
    collector = ArtifactCollector()
    artifact = collector.of_file("file", folder / "env.tar.gz")
    source = collector.sources[artifact.sha256]
    assert b"".join(source.chunks()) == LARGE
    (folder / "env.tar.gz").write_bytes(b"y" * len(LARGE))
    with pytest.raises(PipelineError, match="was changed while the job was being submitted"):
        list(source.chunks())


CTX: Any = SimpleNamespace(spark="the session")


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    return bind_call(function, args, kwargs)(CTX)


def test_ctx_and_spark_are_filled_in_wherever_they_stand() -> None:
    assert call(lambda spark, a: (spark, a), 1) == ("the session", 1)
    assert call(lambda a, spark, b=2: (a, spark, b), 1) == (1, "the session", 2)
    assert call(lambda a, *, ctx, **more: (a, ctx, more), 1, x=2) == (1, CTX, {"x": 2})
    assert call(lambda *args: args, 1, 2) == (1, 2)
    assert call(lambda: 5) == 5
    assert call(lambda spark: spark, spark="mine") == "mine"


def test_spark_is_not_touched_unless_it_is_asked_for() -> None:
    class Cold:
        @property
        def spark(self) -> None:
            raise AssertionError

    cold: Any = Cold()
    assert bind_call(lambda ctx: 1, (), {})(cold) == 1


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (lambda spark, a: a, (), "missing a required argument: 'a'"),
        (lambda spark: 1, (1,), "too many positional arguments"),
        (lambda spark, /: 1, (), "must be ordinary parameters"),
        (lambda spark, *rest: 1, (1,), "which 'rest' cannot be"),
        (min, (), r"does not tell its parameters|missing"),
    ],
)
def test_arguments_that_do_not_fit(function: Any, args: tuple[Any, ...], expected: str) -> None:
    with pytest.raises(PipelineError, match=expected):
        bind_call(function, args, {})


async def later(ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "expected"), [(later, "later is asynchronous"), (5, "expected a function or .*, not a int")]
)
def test_what_is_no_plain_function_is_refused(function: Any, expected: str) -> None:
    with pytest.raises(PipelineError, match=expected):
        function_job(function)


def test_a_function_job_is_one_exclusive_operator() -> None:
    def total(spark: Any, numbers: list[int]) -> int:
        return sum(numbers)

    graph = function_job(total, args=([1, 2],), params={"p": 1}).job_graph()
    assert (graph.name, len(graph.vertices), graph.params) == ("total", 1, {"p": 1})
    operator = graph.vertices[0].operators[0]
    assert operator.kind is OperatorKind.FUNCTION
    assert graph.vertices[0].is_exclusive(graph)
    assert isinstance(operator.code, PickledCode)
    loaded = pickle.loads(operator.code.payload())
    assert isinstance(loaded, FunctionCall)
    assert loaded(CTX) == 3
    assert parse_job_graph(graph.canonical_json()) == graph


def test_run_local_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc" else find_spec(name))
    with pytest.raises(LocalClusterError, match=r"needs grpc: pip install 'airflow-flinklike\[cluster\]'"):
        function_job(lambda: 1).run_local()


def test_errors_cross_processes() -> None:
    failed = pickle.loads(pickle.dumps(JobFailedError("ab", {"class": "ValueError", "message": "no", "kind": "USER"})))
    assert (failed.job_id, failed.kind, str(failed)) == ("ab", "USER", "ValueError: no\n(job ab FAILED)")
    assert pickle.loads(pickle.dumps(JobCanceledError("ab"))).job_id == "ab"
    refused = pickle.loads(pickle.dumps(PipelineError("both", ("a", "b"))))
    assert refused.problems == ("a", "b")


def test_a_url_is_left_to_the_tasks(folder: Path) -> None:
    graph = script_job(
        "s3://bucket/jobs/etl.py",
        py_files="hdfs:/libs/lib.zip, local:///opt/one.py",
        files=["https://host/a%20b.csv?signed=1#b.csv"],
        archives=[f"{folder}/lib.zip#packed"],
        jars="s3://bucket/x.jar, local:/opt/y.jar",
    ).job_graph()
    (operator,) = graph.vertices[0].operators
    assert operator.code.artifact == Artifact.of_url("etl.py", "s3://bucket/jobs/etl.py")
    assert graph.py_files == (
        Artifact.of_url("lib.zip", "hdfs:/libs/lib.zip"),
        Artifact.of_url("one.py", "local:///opt/one.py"),
    )
    assert graph.files == (Artifact.of_url("a b.csv#b.csv", "https://host/a%20b.csv?signed=1"),)
    assert graph.archives[0].url is None
    assert (graph.jars, graph.spark_conf["spark.jars"]) == ((), "s3://bucket/x.jar,local:/opt/y.jar")

"""Each problem of a JobGraph is found, and all of them at once."""

import base64
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.exchange import ExchangeMode as Mode
from runtime.common.ids import VertexId
from runtime.jobgraph.graph import (
    Artifact,
    BlobCode,
    FunctionReference,
    JarCode,
    JobGraph,
    Operator,
    OperatorKind,
    PickledCode,
    ResourceSpec,
    ScriptCode,
    vertex_id_of,
)
from runtime.jobgraph.limits import GRAPH_BYTES_MAX
from runtime.jobgraph.parsing import check_job_graph, parse_job_graph
from runtime.jobgraph.validate import json_problems
from tests.kit.control_plane.job_graphs import diamond, edge, graph, lone, operator, source, vertex

SCRIPT = ScriptCode(script=Artifact.of_bytes("etl.py", b"pass"))
FILE = Artifact.of_bytes("a.txt", b"data")
JAR = JarCode(jar=Artifact.of_bytes("app.jar", b"PK"))


def problems(job_graph: JobGraph, python: str | None = "3.11") -> tuple[str, ...]:
    with pytest.raises(InvalidInputError) as caught:
        check_job_graph(job_graph, python=python)
    return caught.value.problems


def with_code(code: object, kind: OperatorKind = OperatorKind.FUNCTION, **fields: object) -> JobGraph:
    return graph(vertex("v", operators=(Operator(name="o", kind=kind, code=code),), **fields))  # type: ignore[arg-type]  # any code


def jar_graph(**fields: object) -> JobGraph:
    changes: dict[str, Any] = {name: fields.pop(name) for name in ("main_class", "args") if name in fields}
    return with_code(JAR.model_copy(update=changes), OperatorKind.JAR, **fields)


def artifact(**changes: object) -> Artifact:
    return FILE.model_copy(update=changes)


def two(**fields: object) -> JobGraph:
    """a -> b with these fields on the edge."""
    mode = fields.pop("mode", Mode.REBALANCE)
    return graph(source("a"), vertex("b"), edges=(edge("a", "b", mode, **fields),))  # type: ignore[arg-type]  # any fields


def chain_of(*operators: Operator) -> JobGraph:
    return graph(vertex("v", operators=operators))


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


WRONG: dict[str, tuple[Callable[[], JobGraph], str]] = {
    "schema version": (lambda: lone(schema_version=7), "schema version is 7, this cluster speaks 1"),
    "no name": (lambda: lone(name=" "), "a job has no name"),
    "long name": (lambda: lone(name="x" * 300), "has 300 characters, the limit is 256"),
    "control characters": (lambda: lone(name="a\nb"), "has control characters"),
    "no vertices": (graph, "the job has no vertices"),
    "subtasks": (
        lambda: graph(*[source(f"v{i}", parallelism=30_000, max_parallelism=32_768) for i in range(4)]),
        "the job has 120000 subtasks, the limit is 100000",
    ),
    "timeout": (lambda: lone(execution_timeout_seconds=0.0), "execution timeout is 0.0 s"),
    "environment": (lambda: lone(environment={"A=B": "c"}), "is not the name of an environment variable"),
    "nul": (lambda: lone(spark_conf={"spark.a": "b\0"}), "NUL character"),
    "params depth": (lambda: lone(params={"a": nested(70)}), "params: nested deeper than 64 levels"),
    "params integer": (lambda: lone(params={"a": 2**2000}), "an integer has more than 1024 bits"),
    "code of a jar": (lambda: with_code(JAR), "is a function with code of type jar"),
    "jar without one": (lambda: with_code(SCRIPT, OperatorKind.JAR), "is a jar with code of type script"),
    "parallel jar": (lambda: jar_graph(parallelism=2), "a jar has parallelism 1, not 2"),
    "main class": (lambda: jar_graph(main_class="a-b"), "'a-b' is not the name of a class"),
    "argument of a jar": (lambda: jar_graph(args=("a\0",)), "an application's argument holds a NUL"),
    "long argument of a jar": (lambda: jar_graph(args=("x" * 200_000,)), "more than 131071 and 1048576"),
    "url with nul": (lambda: lone(files=(Artifact.of_url("a.txt", "s3://b/a%00.txt"),)), "is not a URL"),
    "jar beside others": (
        lambda: graph(source("a"), *jar_graph().vertices),
        "a jar is the only vertex of its job",
    ),
    "jar with py-files": (
        lambda: graph(*jar_graph().vertices, py_files=(artifact(name="a.py"),)),
        "py-files and wheels are for Python",
    ),
    "jar with secrets": (lambda: graph(*jar_graph().vertices, secrets=("A",)), "secrets are read by Python code"),
    "url with content": (lambda: lone(files=(artifact(url="s3://b/a.txt"),)), "has both a URL and content"),
    "no url": (lambda: lone(files=(Artifact.of_url("a.txt", "a b"),)), "'a b' is not a URL"),
    "url with another digest": (
        lambda: lone(files=(Artifact.of_url("a.txt", "s3://b/a").model_copy(update={"sha256": "0" * 64}),)),
        "of a file with a URL the size is 0, and sha256 that of the URL",
    ),
    "jar elsewhere than here": (lambda: lone(jars=(Artifact.of_url("a.jar", "s3://b/a.jar"),)), "'a.jar' has a URL"),
    "wheel elsewhere": (lambda: lone(wheels=(Artifact.of_url("a.whl", "s3://b/a.whl"),)), "'a.whl' has a URL"),
    "jar with a comma": (lambda: lone(jars=(artifact(name="a,b.jar"),)), "its name has a comma"),
    "application and file": (
        lambda: graph(*with_code(SCRIPT, OperatorKind.SCRIPT).vertices, files=(artifact(name="etl.py"),)),
        "the application and another file would be 'etl.py'",
    ),
    "application as archive": (
        lambda: graph(*with_code(SCRIPT, OperatorKind.SCRIPT).vertices, archives=(artifact(name="x.zip#etl.py"),)),
        "the application and another file would be 'etl.py'",
    ),
    "fetched py-file and file": (
        lambda: lone(files=(artifact(name="a.py"),), py_files=(Artifact.of_url("a.py", "s3://b/a.py"),)),
        "two files or archives would be 'a.py'",
    ),
    "jar twice": (lambda: lone(jars=(artifact(name="a.jar"),) * 2), "jar 'a.jar' is given more than once"),
    "jar elsewhere": (lambda: lone(jars=(artifact(name="../a.jar"),)), "the name must be a plain file name"),
    "splits": (lambda: graph(source("a", splits=(nested(70),))), "vertex 'a': splits: nested deeper"),
    "duplicate id": (lambda: graph(source("a"), source("b", id=vertex_id_of("a"))), "is used more than once"),
    "duplicate vertex name": (
        lambda: graph(source("a"), source("b", name="a")),
        "vertex name 'a' is used more than once",
    ),
    "duplicate operator name": (
        lambda: graph(source("a"), source("b", operators=(operator("a", OperatorKind.SOURCE),))),
        "operator name 'a' is used more than once",
    ),
    "vertex id": (lambda: graph(source("a", id=VertexId("A"))), "id 'A' is not 32 lower-case hex digits"),
    "parallelism below 1": (lambda: graph(source("a", parallelism=0)), "parallelism is 0, it must be at least 1"),
    "parallelism above maximum": (
        lambda: graph(source("a", parallelism=9, max_parallelism=8)),
        "parallelism 9 is above its maximum parallelism 8",
    ),
    "maximum parallelism": (
        lambda: graph(source("a", max_parallelism=2**15 + 1)),
        "maximum parallelism 32769 is not within 1 and 32768",
    ),
    "group": (lambda: graph(source("a", slot_sharing_group="")), "the slot sharing group has no name"),
    "resources": (lambda: graph(source("a", resources=ResourceSpec(cpu_cores=-1))), "resources must not be negative"),
    "memory of no message": (
        lambda: graph(source("a", resources=ResourceSpec(memory_bytes=2**63))),
        "vertex 'a': resources must not have more than 9223372036854775807 bytes of memory",
    ),
    "no operators": (lambda: graph(source("a", operators=())), "vertex 'a' has no operators"),
    "inner source": (
        lambda: chain_of(operator("a", OperatorKind.SOURCE), operator("b", OperatorKind.SOURCE)),
        "operator 'b' is a source and can only be the first of a chain",
    ),
    "inner sink": (
        lambda: chain_of(
            operator("a", OperatorKind.SOURCE), operator("b", OperatorKind.SINK), operator("c", OperatorKind.MAP)
        ),
        "sink 'b' is followed by another operator",
    ),
    "chained function": (
        lambda: chain_of(operator("a", OperatorKind.FUNCTION), operator("b", OperatorKind.MAP)),
        "a function is never chained",
    ),
    "code of a script": (
        lambda: with_code(FunctionReference(target="a:b"), OperatorKind.SCRIPT),
        "is a script with code of type reference",
    ),
    "script as function": (lambda: with_code(SCRIPT), "is a function with code of type script"),
    "script parallelism": (
        lambda: with_code(SCRIPT, OperatorKind.SCRIPT, parallelism=2),
        "a script has parallelism 1, not 2",
    ),
    "script argument": (
        lambda: with_code(SCRIPT.model_copy(update={"args": ("\0",)}), OperatorKind.SCRIPT),
        "argument holds a NUL",
    ),
    "reference": (lambda: with_code(FunctionReference(target="a.b.c")), "'a.b.c' is not a reference"),
    "pickle digest": (
        lambda: with_code(PickledCode.of_bytes(b"a").model_copy(update={"sha256": "0" * 64})),
        "code: sha256 does not match the content",
    ),
    "pickle base64": (
        lambda: with_code(PickledCode.of_bytes(b"a").model_copy(update={"data": "%%%"})),
        "inline content is not base64",
    ),
    "pickle size": (
        lambda: with_code(PickledCode.of_bytes(b"a" * 70_000)),
        "inline content is above 65536 bytes and must be uploaded",
    ),
    "python version": (
        lambda: with_code(PickledCode.of_bytes(b"a").model_copy(update={"python": "3.9"})),
        "code was pickled by Python 3.9 and would run on 3.11",
    ),
    "python version of a blob": (
        lambda: with_code(BlobCode(blob=FILE, python="3.9")),
        "code was pickled by Python 3.9 and would run on 3.11",
    ),
    "python version text": (
        lambda: with_code(BlobCode(blob=FILE, python="latest")),
        "'latest' is not a Python minor version",
    ),
    "unknown vertex": (lambda: graph(source("a"), edges=(edge("a", "b"),)), "an edge names the unknown vertex"),
    "forward": (
        lambda: graph(source("a"), vertex("b", parallelism=2), edges=(edge("a", "b", Mode.FORWARD),)),
        "forward needs equal parallelism, not 1 and 2",
    ),
    "gather": (
        lambda: graph(source("a"), vertex("b", parallelism=2), edges=(edge("a", "b", Mode.GATHER),)),
        "gather needs a consumer of parallelism 1, not 2",
    ),
    "hash without keys": (lambda: two(mode=Mode.HASH, key_columns=()), "a hash edge needs at least one"),
    "keys without hash": (lambda: two(key_columns=("k",)), "key columns belong to hash edges"),
    "duplicate key": (lambda: two(mode=Mode.HASH, key_columns=("k", "k")), "'k' is named more than once"),
    "empty key": (lambda: two(mode=Mode.HASH, key_columns=("",)), "a key column has no name"),
    "hash key counts": (
        lambda: graph(
            source("a"),
            source("b"),
            vertex("c"),
            edges=(
                edge("a", "c", Mode.HASH),
                edge("b", "c", Mode.HASH, key_columns=("k", "l"), input_index=1),
            ),
        ),
        "its hash edges have different numbers of key columns: [1, 2]",
    ),
    "input gap": (lambda: two(input_index=1), "its inputs are numbered [1], expected 0 to 0 without gaps"),
    "source with input": (
        lambda: graph(source("a"), source("b"), edges=(edge("a", "b"),)),
        "an edge into a source brings its splits, and is a broadcast one, not REBALANCE",
    ),
    "source with two inputs": (
        lambda: graph(
            source("a"),
            source("b"),
            source("c"),
            edges=(edge("a", "c", Mode.BROADCAST), edge("b", "c", Mode.BROADCAST, input_index=1)),
        ),
        "a source takes no inputs, this one has 2",
    ),
    "splits twice": (
        lambda: graph(source("a"), source("b", splits=(1,)), edges=(edge("a", "b", Mode.BROADCAST),)),
        "a source has its splits from a list, or from another vertex, not from both",
    ),
    "splits of several tasks": (
        lambda: graph(source("a", parallelism=2), source("b"), edges=(edge("a", "b", Mode.BROADCAST),)),
        "splits are found by one task, and 'a' has parallelism 2",
    ),
    "splits of another source": (
        lambda: graph(source("a"), source("b"), edges=(edge("a", "b", Mode.BROADCAST),)),
        "a source takes no inputs but its splits, and 'a' finds none",
    ),
    "chosen parallelism of a query's rows": (
        lambda: graph(source("a", rows_per_task=5)),
        "rows_per_task, at least 1, is for a vertex without a parallelism of its own",
    ),
    "splittable without a choice": (
        lambda: graph(
            source("a"), vertex("b"), edges=(edge("a", "b", Mode.HASH, key_columns=("k",), splittable=True),)
        ),
        "splittable and broadcast_below are for hash edges to a vertex without a parallelism of its own",
    ),
    "broadcast below nothing": (
        lambda: graph(
            source("a"),
            vertex("b", parallelism=-1),
            edges=(edge("a", "b", Mode.HASH, key_columns=("k",), broadcast_below=0),),
        ),
        "broadcast_below is 0 bytes, it must be at least 1",
    ),
    "apply without input": (lambda: graph(vertex("a")), "a apply needs at least one input"),
    "map with two inputs": (
        lambda: graph(
            source("a"), vertex("b", OperatorKind.MAP), edges=(edge("a", "b"), edge("a", "b", input_index=1))
        ),
        "a map takes one input, this one has 2",
    ),
    "sink with consumer": (
        lambda: graph(
            source("a"),
            vertex("b", OperatorKind.SINK),
            vertex("c"),
            edges=(edge("a", "b"), edge("b", "c")),
        ),
        "a sink has no consumers",
    ),
    "cycle": (
        lambda: graph(
            source("a"),
            vertex("b"),
            vertex("c"),
            vertex("d"),
            edges=(edge("a", "b"), edge("b", "c"), edge("c", "b", input_index=1), edge("c", "d")),
        ),
        "the graph has a cycle through 'b', 'c'",
    ),
    "pending file": (lambda: lone(files=(artifact(inline=None),)), "was not uploaded"),
    "key and inline": (lambda: lone(files=(artifact(key=f"{FILE.sha256}-1"),)), "both a key and inline content"),
    "foreign key": (lambda: lone(files=(artifact(inline=None, key="x-1"),)), "is not '<its sha256>-<upload id>'"),
    "sha256": (lambda: lone(files=(artifact(sha256="x"),)), "sha256 is not 64 lower-case hex digits"),
    "file size": (lambda: lone(files=(artifact(size_bytes=99),)), "has 4 bytes, not 99"),
    "path traversal": (lambda: lone(files=(artifact(name="../x"),)), "the name must be a plain file name"),
    "alias traversal": (lambda: lone(archives=(artifact(name="x.zip#.."),)), "the name must be a plain file name"),
    "same file twice": (
        lambda: lone(files=(FILE,), archives=(artifact(name="x.zip#a.txt"),)),
        "two files or archives would be 'a.txt'",
    ),
    "same py-file twice": (lambda: lone(py_files=(FILE, FILE)), "py-file 'a.txt' is given more than once"),
    "too many files": (lambda: lone(files=(FILE,) * 1001), "the job brings 1001 files, the limit is 1000"),
}


@pytest.mark.parametrize(("build", "expected"), WRONG.values(), ids=WRONG.keys())
def test_problem_is_found(build: Callable[[], JobGraph], expected: str) -> None:
    assert any(expected in problem for problem in problems(build()))


def test_numbers_that_json_does_not_have_are_refused() -> None:
    assert list(json_problems("params", {"a": [float("nan")]})) == ["params: nan is not a JSON number"]
    assert list(json_problems("params", {"a": {1}})) == ["params: a value of type set is not JSON"]
    assert list(json_problems("params", {1: 2})) == ["params: a JSON object has a key that is not a string"]


def test_right_graphs_have_no_problem() -> None:
    for job_graph in (
        diamond(),
        lone(),
        with_code(SCRIPT, OperatorKind.SCRIPT),
        lone(archives=(artifact(name="x.zip#env"),), files=(FILE,)),
    ):
        check_job_graph(job_graph, python="3.11")


def test_all_problems_are_listed_at_once() -> None:
    found = problems(
        graph(
            source("a", parallelism=0),
            vertex("b", parallelism=2),
            edges=(edge("a", "b", Mode.GATHER, input_index=3), edge("b", "nowhere")),
            execution_timeout_seconds=-1.0,
        )
    )
    assert len(found) == 5


def test_the_list_of_problems_is_bounded() -> None:
    assert len(problems(graph(*[vertex(f"v{i}", parallelism=0) for i in range(500)]))) == 100


def test_python_version_is_compared_only_when_given() -> None:
    job_graph = with_code(PickledCode.of_bytes(b"a").model_copy(update={"python": "3.99"}))
    check_job_graph(job_graph, python=None)
    with pytest.raises(InvalidInputError, match=r"3\.99"):
        parse_job_graph(job_graph.canonical_json())
    assert parse_job_graph(job_graph.canonical_json(), python="3.99") == job_graph


def test_a_graph_of_another_schema_is_refused_for_that_and_not_for_its_fields() -> None:
    newer = json.dumps({"schema_version": 2, "name": "x", "nodes": []}).encode()
    with pytest.raises(InvalidInputError, match="schema version 2, this cluster speaks 1") as caught:
        parse_job_graph(newer)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[" * 200_000,
        b'{"name":"x","vertices":[],"params":{"a":' + b"9" * 5000 + b"}}",
        b'{"name":"\\ud800","vertices":[]}',
        b'{"name":"x","vertices":[],"params":{"a":' + b"[" * 150 + b"]" * 150 + b"}}",
        b'{"name":"x","vertices":[],"params":{"a":NaN}}',
        b'{"name":"x","vertices":[' + b"{}," * 3000 + b"{}]}",
        b'{"name":"x","vertices":[],"' + base64.b16encode(random.Random(1).randbytes(5000)) + b'":1}',
        b" " * (GRAPH_BYTES_MAX + 1),
    ],
    ids=lambda data: f"{len(data)}-{data[:12]!r}",
)
def test_hostile_input_costs_one_bounded_error(data: bytes) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_job_graph(data)
    assert len(str(caught.value)) < 50_000


def test_labels_that_no_task_manager_can_have_are_named() -> None:
    spec = ResourceSpec(labels=("gpu", "zone=a", "zone=b"))
    found = problems(graph(source("v", resources=spec)))
    assert [one.partition(": ")[2].partition(":")[0] for one in found] == [
        "'gpu' is no label",
        "the label zone has two values",
    ]

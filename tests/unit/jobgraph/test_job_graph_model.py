"""The JobGraph's JSON form, digest, indexes, and what importing it costs."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from runtime.common.errors import InvalidInputError
from runtime.common.exchange import ExchangeMode
from runtime.common.version import JOB_GRAPH_SCHEMA_VERSION
from runtime.jobgraph.graph import (
    INLINE_BYTES_MAX,
    Artifact,
    BlobCode,
    JobGraph,
    Operator,
    OperatorKind,
    PickledCode,
    ResourceSpec,
    ScriptCode,
    dump_operators,
    parse_operators,
    vertex_id_of,
)
from runtime.jobgraph.parsing import parse_job_graph
from tests.kit.control_plane.job_graphs import diamond, edge, graph, lone, operator, source, vertex

SCHEMA_FILE = Path(__file__).with_name("job_graph.v1.schema.json")


def test_a_graph_survives_its_json() -> None:
    original = diamond()
    assert parse_job_graph(original.canonical_json()) == original


def test_canonical_json_does_not_depend_on_the_form_it_was_read_from() -> None:
    original = lone(params={"b": 1, "a": [1, {"z": None, "y": "ü"}]})
    reordered = json.dumps(dict(reversed(json.loads(original.canonical_json()).items())), indent=3).encode()
    assert parse_job_graph(reordered).canonical_json() == original.canonical_json()


def test_digest_is_the_sha256_of_the_canonical_json() -> None:
    assert diamond().digest() == hashlib.sha256(diamond().canonical_json()).hexdigest()
    assert diamond().digest() != lone().digest()


def test_a_graph_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        lone().name = "other"


def test_edges_are_indexed_by_input_and_by_output() -> None:
    swapped = graph(
        source("a"),
        source("b"),
        vertex("c"),
        edges=(edge("b", "c", input_index=1), edge("a", "c", input_index=0)),
    )
    assert [e.source for e in swapped.in_edges(vertex_id_of("c"))] == [vertex_id_of("a"), vertex_id_of("b")]
    assert [e.target for e in diamond().out_edges(vertex_id_of("read"))] == [
        vertex_id_of("left"),
        vertex_id_of("right"),
    ]
    assert swapped.out_edges(vertex_id_of("c")) == ()
    assert swapped.vertex(vertex_id_of("b")).name == "b"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("read", False), ("left", False), ("report", True)],
)
def test_a_vertex_without_consumers_is_exclusive(name: str, *, expected: bool) -> None:
    assert diamond().vertex(vertex_id_of(name)).is_exclusive(diamond()) is expected


def test_exclusive_can_be_set_either_way() -> None:
    told = graph(source("a", exclusive=True), vertex("b", exclusive=False), edges=(edge("a", "b"),))
    assert [v.is_exclusive(told) for v in told.vertices] == [True, False]


def test_operators_survive_their_json() -> None:
    chain = (
        operator("read", OperatorKind.SOURCE),
        Operator(name="map", kind=OperatorKind.MAP, code=PickledCode.of_bytes(b"code")),
        Operator(
            name="big",
            kind=OperatorKind.SINK,
            code=BlobCode(blob=Artifact(name="c", sha256="0" * 64, size_bytes=9, key="k"), python="3.11"),
        ),
    )
    assert parse_operators(dump_operators(chain)) == chain
    assert chain[1].code.type == "pickled"
    with pytest.raises(InvalidInputError, match="not well-formed"):
        parse_operators(b'[{"name": 1}]')


def test_pickled_code_gives_its_bytes_back() -> None:
    code = PickledCode.of_bytes(b"\x00\xff")
    assert code.payload() == b"\x00\xff"
    assert code.python == f"{sys.version_info.major}.{sys.version_info.minor}"


def test_small_files_are_inline_and_larger_ones_wait_for_their_upload() -> None:
    small, large = (
        Artifact.of_bytes("s", b"x" * INLINE_BYTES_MAX),
        Artifact.of_bytes("l", b"x" * (INLINE_BYTES_MAX + 1)),
    )
    assert not small.is_pending
    assert small.inline_bytes() == b"x" * INLINE_BYTES_MAX
    assert large.is_pending
    assert large.inline_bytes() == b""


def test_keys_of_uploaded_files_are_filled_in_everywhere() -> None:
    pending = Artifact(name="big", sha256="a" * 64, size_bytes=10**6)
    script = Operator(name="s", kind=OperatorKind.SCRIPT, code=ScriptCode(script=pending))
    blob = Operator(name="b", kind=OperatorKind.FUNCTION, code=BlobCode(blob=pending, python="3.11"))
    before = graph(vertex("s", operators=(script,)), vertex("b", operators=(blob,)), vertex("c"), files=(pending,))
    after = before.map_artifacts(lambda artifact: artifact.model_copy(update={"key": f"{artifact.sha256}-1"}))
    assert [artifact.key for artifact in before.artifacts()] == [None] * 3
    assert [artifact.key for artifact in after.artifacts()] == [f"{'a' * 64}-1"] * 3
    assert after.vertices[2] is before.vertices[2]
    assert after.vertex(after.vertices[0].id) is after.vertices[0]
    assert JobGraph.model_validate_json(after.canonical_json()) == after


def test_what_earlier_releases_do_not_know_is_sent_and_stored_only_when_it_is_asked_for() -> None:  # D-029
    plain = lone()
    assert "user_failures" not in plain.document()
    asked = plain.model_copy(update={"user_failures": "final"})
    assert asked.document() == {**plain.document(), "user_failures": "final"}
    assert parse_job_graph(asked.canonical_json()) == asked


def test_so_is_what_a_script_sets_itself() -> None:  # D-029
    artifact = Artifact(name="etl.py", sha256="a" * 64, size_bytes=1, key="k")
    assert "builder_conf" not in ScriptCode(script=artifact).model_dump(mode="json")
    asked = ScriptCode(script=artifact, builder_conf={"spark.serializer": "x"})
    assert asked.model_dump(mode="json")["builder_conf"] == {"spark.serializer": "x"}


def test_the_schema_changes_only_on_purpose() -> None:
    """Update the file together with JOB_GRAPH_SCHEMA_VERSION, or with an optional field that has a default."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:flinklike:job-graph:{JOB_GRAPH_SCHEMA_VERSION}",
        **JobGraph.model_json_schema(mode="validation"),
    }
    assert json.loads(SCHEMA_FILE.read_text()) == json.loads(json.dumps(schema))


def test_importing_the_job_graph_loads_nothing_heavy() -> None:
    code = (
        "import sys, runtime.jobgraph.graph, runtime.jobgraph.task_context, runtime.jobgraph.slots, "
        "runtime.jobgraph.chaining; "
        "print([m for m in ('pandas','pyarrow','pyspark','grpc','google.protobuf','fastapi','fsspec') "
        "if m in sys.modules] + sorted({m.split('.')[1] for m in sys.modules if m.startswith('runtime.')}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['common', 'jobgraph']"


def test_modes_are_shared_with_the_gateways() -> None:
    from runtime.gateways.task import ExchangeMode as GatewayMode

    assert GatewayMode is ExchangeMode


def test_labels_of_resources_have_one_form_and_are_left_out_while_there_are_none() -> None:
    plain = lone()
    assert b"labels" not in plain.canonical_json()
    specs = [ResourceSpec(labels=given) for given in ({"zone": "b", "gpu": "1"}, ["zone=b", "gpu=1"])]  # type: ignore[arg-type]  # what users write
    assert specs[0] == specs[1] == ResourceSpec(labels=("gpu=1", "zone=b"))
    labelled = plain.model_copy(update={"vertices": (plain.vertices[0].model_copy(update={"resources": specs[0]}),)})
    assert parse_job_graph(labelled.canonical_json()) == labelled
    with pytest.raises(ValidationError):
        ResourceSpec(labels=[1])  # type: ignore[arg-type]  # no text

"""`flinklike savepoint`, and what `flinklike run` says of a savepoint to start from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.checkpoint.savepoint.savepoint_files import read_savepoint
from runtime.common.states import JobType
from runtime.jobgraph.savepoints import ClaimMode, SavepointRestoreSettings
from tests.kit.checkpoint.query_directories import query_directory, saved, sink_directory
from tests.kit.control_plane.streaming_jobs import streaming_job
from tests.kit.host.command_line import RunCommand
from tests.kit.rest.server import RestThread


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "orders.json"
    path.write_bytes(streaming_job("orders", ends=True).canonical_json())
    return path


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    source = query_directory(tmp_path / "query", batches=5)
    table = sink_directory(tmp_path / "table", batches=5)
    reads = ("FileStreamSource[file:/in]", "KafkaV2[Subscribe[prices]]")
    return saved(tmp_path / "savepoints", source, batch_id=4, sink=table, uid="orders", sources=reads)


def test_a_job_is_started_from_a_savepoint(flinklike: RunCommand, server: RestThread, graph: Path) -> None:
    for arguments, settings in (
        (("-s", "/s/savepoint-1"), SavepointRestoreSettings(path="/s/savepoint-1")),
        (("--from-savepoint", "file:/s/1"), SavepointRestoreSettings(path="file:/s/1")),
        (
            ("-s", "savepoint-1", "-n", "--claim-mode", "claim"),
            SavepointRestoreSettings(
                path=str(Path("savepoint-1").absolute()), allow_non_restored_state=True, claim_mode=ClaimMode.CLAIM
            ),
        ),
        (
            ("-s", "/s/1", "--state-partitions", "8", "--state-partitions", "orders=16"),
            SavepointRestoreSettings(path="/s/1", state_partitions={"*": 8, "orders": 16}),
        ),
    ):
        done = flinklike("run", "-d", *arguments, str(graph))
        assert done.code == 0, done.err
        assert server.dispatcher.graph().savepoint == settings
    assert flinklike("run", "-d", str(graph)).code == 0
    assert server.dispatcher.graph().savepoint is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-n",), "give one with --from-savepoint"),
        (("--claim-mode", "CLAIM"), "give one with --from-savepoint"),
        (("--state-partitions", "8"), "give one with --from-savepoint"),
        (("-s", "/s", "--state-partitions", "many"), "expected a number, or UID=NUMBER"),
        (("-s", "/s", "--state-partitions", "nobody=8"), "'nobody', which is the uid of no query"),
        (("-s", "/s", "--state-partitions", "0"), "there are 1 to 10000"),
        (("-s", "/s", "--state-partitions", "8", "--state-partitions", "9"), "a number for 'all queries' already"),
        (("-s", "/s", "--claim-mode", "LEGACY"), "--claim-mode: claim mode 'LEGACY' is none of NO_CLAIM, CLAIM"),
        (("-s", "/" + "s" * 5000), "a path has up to 4096 characters"),
        (("-s", "/a\nb"), "is no absolute path and no file URL"),
        (("-s", "/savepoints/savepoint-1/orders/.."), "has '..' in it"),
    ],
)
def test_what_has_no_effect_is_refused(
    flinklike: RunCommand, server: RestThread, graph: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = flinklike("run", *arguments, str(graph))
    assert (done.code, says in done.err) == (1, True), done.err
    assert not server.dispatcher.submitted


def test_a_job_without_queries_has_nothing_to_restore(flinklike: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "etl.py").write_text("print(1)")
    done = flinklike("run", "-s", "/s", str(tmp_path / "etl.py"))
    assert (done.code, "the job has no streaming query" in done.err) == (1, True), done.err


def test_a_script_may_stream(flinklike: RunCommand, server: RestThread, graph: Path, tmp_path: Path) -> None:
    (tmp_path / "etl.py").write_text("print(1)")
    assert flinklike("run", "-d", "--streaming", str(tmp_path / "etl.py")).code == 0
    assert server.dispatcher.graph().job_type is JobType.STREAMING
    named = ("--streaming", "--checkpoint-name", "orders")
    assert flinklike("run", "-d", *named, str(tmp_path / "etl.py")).code == 0
    assert server.dispatcher.graph().checkpoint_name == "orders"
    done = flinklike("run", "-d", "--streaming", str(graph))
    assert (done.code, "takes no --streaming" in done.err) == (1, True), done.err
    done = flinklike("run", "-d", "--checkpoint-name", "orders", str(graph))
    assert (done.code, "takes no --checkpoint-name" in done.err) == (1, True), done.err


def test_a_savepoint_is_inspected(flinklike: RunCommand, savepoint: Path) -> None:
    first, job, made, head, line, reads = flinklike("savepoint", "inspect", str(savepoint)).out.splitlines()
    assert first == f"savepoint {savepoint}"
    assert job == f"of job {'0123456789' * 3} (orders), number 7"
    assert (made.startswith("made 2023-"), made.endswith(" by version 1")) == (True, True), made
    assert head.split()[:4] == ["uid", "subtask", "splits", "batch"]
    assert line.split()[:5] == ["orders", "0", "of", "1", "4"]
    assert '{"logOffset": 4}' in line
    assert reads == "orders reads FileStreamSource[file:/in]; KafkaV2[Subscribe[prices]]"
    body = json.loads(flinklike("savepoint", "inspect", savepoint.as_uri(), "--json").out)
    assert body == read_savepoint(savepoint).model_dump(mode="json")


def test_savepoints_are_listed(flinklike: RunCommand, savepoint: Path, tmp_path: Path) -> None:
    head, line = flinklike("savepoint", "list", str(savepoint.parent)).out.splitlines()
    assert head.split() == ["savepoint", "job", "name", "made", "queries", "size"]
    assert "orders" in line
    (body,) = json.loads(flinklike("savepoint", "list", str(savepoint.parent), "--json").out)["savepoints"]
    assert (body["path"], body["queries"], body["checkpoint_id"]) == (str(savepoint), 1, 7)
    (tmp_path / "empty").mkdir()
    assert flinklike("savepoint", "list", str(tmp_path / "empty")).out == f"No savepoints in {tmp_path / 'empty'}.\n"
    (savepoint / "_metadata").write_text("{")
    done = flinklike("savepoint", "list", str(savepoint.parent))
    assert (done.code, "is no metadata of a savepoint" in done.err) == (1, True)
    done = flinklike("savepoint", "list", str(tmp_path / "none"))
    assert (done.code, done.err) == (1, f"flinklike: {tmp_path / 'none'} cannot be listed: No such file or directory\n")


def test_a_savepoint_is_disposed_of(flinklike: RunCommand, savepoint: Path) -> None:
    (savepoint / "mine").write_text("kept")
    refused = flinklike("savepoint", "dispose", str(savepoint))
    assert (refused.code, "nothing is deleted" in refused.err) == (1, True)
    (savepoint / "mine").unlink()
    assert flinklike("savepoint", "dispose", str(savepoint)).out == f"Savepoint {savepoint} is deleted.\n"
    assert not savepoint.exists()
    again = flinklike("savepoint", "dispose", str(savepoint))
    assert (again.code, f"there is no savepoint at {savepoint}" in again.err) == (1, True)

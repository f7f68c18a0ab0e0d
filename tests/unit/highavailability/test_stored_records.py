"""What earlier releases have stored: every form of every record, byte by byte, is read by this one.

`stored_records.txt` has a line for each form that a release has ever written: the record's name and its bytes. A line
is never changed. After a record has got a field (with a default), RECORD_STORED_FORMS=1 adds the line of its new form.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.ids import ClusterUuid, Incarnation, JobId, VertexId
from runtime.common.states import JobStatus
from runtime.gateways.checkpoints import QueryPosition
from runtime.gateways.dispatcher import JobSummary, TaskCounts
from runtime.gateways.operations import OperationKind, OperationState, SavepointDisposal, StreamOperation
from runtime.gateways.overview import Takeover
from runtime.highavailability import records
from runtime.highavailability.leadership import cluster
from runtime.highavailability.record_codec import decode_record, encode_record

FORMS = Path(__file__).with_name("stored_records.txt")
PAYLOAD = records.Payload("ab" * 32, b"\x00\xff\xfe bytes", "")
POINTER = records.Payload("cd" * 32, b"", "key")
PROCESS = Incarnation("1" * 32)
SAMPLES: tuple[Any, ...] = (
    records.GraphRecord(
        PAYLOAD, "n\u00e4me", 12, "client", "airflow", "team-a", checkpointing=CheckpointSettings(interval=2.5)
    ),
    records.OwnerRecord(PROCESS, "host:1", (Takeover(12, PROCESS, "host:2", PROCESS, "host:1", "reason"),)),
    records.EventsRecord(POINTER),
    records.CheckpointRecord(7, 12, 34, (QueryPosition(VertexId("2" * 32), 3, "orders", "query", 41, 5, 6, 33),)),
    records.OperationRecord(
        StreamOperation(
            "b" * 32,
            OperationKind.STOP,
            OperationState.FAILED,
            7,
            12,
            "/s/savepoint-1",
            drains=True,
            ended_millis=34,
            cause="because",
        )
    ),
    records.DisposalRecord(
        SavepointDisposal(
            "c" * 32,
            "/s/savepoint-1",
            OperationState.FAILED,
            12,
            below="/s",
            submitter="sam",
            namespace="team-a",
            job_id="a" * 32,
            ended_millis=34,
            cause="because",
        )
    ),
    records.ResultRecord(JobStatus.FAILED, b"\xff", PAYLOAD),
    records.DoneRecord("d", JobStatus.FINISHED, b"s", "key", 1, 2, "s"),
    records.WantedRecord(wants_cancel=True, client="me", move_to=PROCESS, move_epoch=7, reason="because"),
    records.ClientRecord(1_767_268_800_000),
    records.LeaderRecord(PROCESS, "a:1", "b:2"),
    records.JobMasterRecord(PROCESS, "a:1", 5, 2, "ready", "0.1.0", 0.5, 1024),
    records.TaskManagerRecord(PROCESS, "tm", "a:1", "b:2", "boot", 4),
    records.GuardRecord(is_reached=True),
    records.FenceRecord(12, 34, is_lifted=True),
    records.ClusterEventRecord("0123456789abcdef", 12, "job-taken-over", "m\u00e4r", "1" * 32, "a" * 32, "team-a", 3),
    records.PrincipalRecord("airflow", "submitter", "team-a", (records.StoredToken("ef" * 32, 12, 34),), "alice"),
    records.JarRecord("1-a.zip", "a.zip", "key", 12, 34, "team-a", "sam", ("etl.py",)),
    records.LastJarRecord("1-a.zip"),
    records.LastCheckpointRecord(7),
    cluster.ClusterRecord(ClusterUuid("e" * 32)),
    JobSummary(
        JobId("a" * 32),
        "job",
        JobStatus.RUNNING,
        7,
        3,
        1000,
        -1,
        2000,
        TaskCounts(running=1, finished=2),
        "reason",
        submitter="airflow",
        namespace="team-a",
    ),
)
BY_NAME = {type(sample).__name__: sample for sample in SAMPLES}
NO_RECORDS = {"Payload", "StoredJob", "StoredResult", "StoredToken"}
"""Parts of records, and what is read of many."""


def recorded() -> dict[str, list[bytes]]:
    forms: dict[str, list[bytes]] = defaultdict(list)
    for line in FORMS.read_bytes().splitlines():
        name, _, data = line.partition(b" ")
        forms[name.decode()].append(data)
    return forms


def record_new_forms() -> None:
    known = FORMS.read_bytes().splitlines() if FORMS.exists() else []
    lines = [f"{name} ".encode() + encode_record(sample) for name, sample in BY_NAME.items()]
    FORMS.write_bytes(b"".join(line + b"\n" for line in [*known, *(one for one in lines if one not in known)]))


if os.environ.get("RECORD_STORED_FORMS"):
    record_new_forms()


def test_every_record_is_here() -> None:
    defined = {
        name
        for module in (records, cluster)
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
    }
    assert defined - NO_RECORDS | {"JobSummary"} == set(BY_NAME) == set(recorded())


@pytest.mark.parametrize("name", BY_NAME)
def test_what_every_release_has_stored_is_read(name: str) -> None:
    """A field that a form does not have yet has its default, the others are as they were."""
    sample = BY_NAME[name]
    for data in recorded()[name]:
        found = decode_record(type(sample), data, key=name)
        for field in dataclasses.fields(sample):
            value = getattr(found, field.name)
            if f'"{field.name}":'.encode() in data:
                assert value == getattr(sample, field.name), field.name
            else:
                assert value == field.default, field.name


@pytest.mark.parametrize("name", BY_NAME)
def test_a_new_form_is_recorded(name: str) -> None:
    assert recorded()[name][-1] == encode_record(BY_NAME[name]), "run this test with RECORD_STORED_FORMS=1"

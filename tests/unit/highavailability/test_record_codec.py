"""Records and keys: what is written can be read, what cannot be read names its key."""

from __future__ import annotations

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.highavailability import records
from runtime.highavailability.keys import Keys
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record

PAYLOAD = records.Payload("ab" * 32, b"\x00\xff\xfe bytes", "")
ALL = [
    records.GraphRecord(PAYLOAD, "näme", 12, "client"),
    records.OwnerRecord(Incarnation("1" * 32), "host:1"),
    records.EventsRecord(PAYLOAD),
    records.ResultRecord(JobStatus.FAILED, b"\xff", PAYLOAD),
    records.DoneRecord("d", JobStatus.FINISHED, b"", "key", 1, 2, "s"),
    records.WantedRecord(wants_cancel=True, client="me"),
    records.ClientRecord(5),
    records.LeaderRecord(Incarnation("1" * 32), "a:1", "b:2"),
    records.JobMasterRecord(Incarnation("1" * 32), "a:1", 5, 2, "ready", "0.1.0"),
    records.TaskManagerRecord(Incarnation("1" * 32), "tm", "a:1", "b:2", "boot", 4),
    records.FenceRecord(12, 34),
]


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_round_trip(record: object) -> None:
    data = encode_record(record)
    assert data.startswith(b'{"v":1,')
    assert decode_record(type(record), data, key="k") == record
    assert encode_record(record) == data


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_fields_of_a_newer_release_are_ignored(record: object) -> None:
    data = encode_record(record).replace(b'"record":{', b'"record":{"new_field":{"x":1},')
    assert decode_record(type(record), data, key="k") == record


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xfe", "no JSON"),
        (b"", "no JSON"),
        (b"[1]", "no version"),
        (b'{"record":{}}', "no version"),
        (b'{"v":2,"record":{"incarnation":"1","address":"a"}}', "version 2"),
        (b'{"v":1,"record":{"incarnation":"1"}}', "version 1"),
    ],
)
def test_an_unreadable_record_names_its_key(data: bytes, words: str) -> None:
    with pytest.raises(UnreadableRecordError, match=words) as caught:
        decode_record(records.OwnerRecord, data, key="jobs/1/owner")
    assert caught.value.key == "jobs/1/owner"
    assert "jobs/1/owner" in str(caught.value)


def test_keys_are_those_of_the_protocol() -> None:
    keys = Keys.of_cluster("prod-1")
    job, incarnation = JobId("a" * 32), Incarnation("b" * 32)
    root = "/flinklike/prod-1/"
    assert keys.cluster == f"{root}cluster"
    assert keys.leader(255) == f"{root}leader/jobmanager/ff"
    assert keys.job_master(incarnation) == f"{root}jobmasters/{incarnation}"
    assert keys.task_manager(incarnation) == f"{root}taskmanagers/{incarnation}"
    assert keys.fence(incarnation, job) == f"{root}taskmanagers/{incarnation}/fences/{job}"
    assert keys.graph(job) == f"{root}jobs/{job}/graph"
    assert keys.owner(job) == f"{root}jobs/{job}/owner"
    assert keys.wanted(job) == f"{root}jobs/{job}/wanted"
    assert keys.result(job) == f"{root}jobs/{job}/result"
    assert keys.done(job) == f"{root}done/{job}"
    assert keys.event(job, 9) < keys.event(job, 10)
    assert keys.split_job_key(keys.event(job, 1)) == (job, "events/0000000001")
    assert keys.split_job_key(f"{root}jobs/x/graph") is None


@pytest.mark.parametrize("cluster_id", ["", "a/b", "..", "/", "ä", "a" * 129, " a", "a\n"])
def test_a_cluster_id_is_one_part_of_a_key(cluster_id: str) -> None:
    with pytest.raises(InvalidInputError):
        Keys.of_cluster(cluster_id)

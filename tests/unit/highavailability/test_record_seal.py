"""Seals of records (R38): a value of another cluster, or of another key, is refused, and logged once."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.ids import Incarnation
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record
from runtime.highavailability.record_seal import RecordSeal
from runtime.highavailability.records import LeaderRecord, OwnerRecord
from runtime.security.cluster_key import ClusterKey

SEAL = RecordSeal(ClusterKey(bytes(range(32))))
KEY = "/flinklike/default/jobs/1/owner"
OWNER = OwnerRecord(Incarnation("a" * 32), "h:1")
STORED = SEAL.sealed(KEY, encode_record(OWNER))


def opened(stored: bytes, *, key: str = KEY, by: RecordSeal = SEAL) -> OwnerRecord:
    return decode_record(OwnerRecord, by.opened(key, stored), key=key)


def refusal(stored: bytes, *, key: str = KEY, by: RecordSeal = SEAL) -> str:
    with pytest.raises(UnreadableRecordError, match="is refused") as caught:
        opened(stored, key=key, by=by)
    assert caught.value.key == key
    assert str(caught.value).startswith(f"{key} is refused: ")
    return str(caught.value)


def test_what_was_sealed_is_opened() -> None:
    assert SEAL.opened(KEY, STORED) == encode_record(OWNER)
    assert opened(STORED) == OWNER
    again = RecordSeal(ClusterKey(bytes(range(32))))
    assert again.sealed(KEY, encode_record(OWNER)) == STORED, "the same bytes in every process"


def test_the_form_is_the_one_that_was_ever_stored() -> None:
    """D-029: add a form, never change one."""
    assert STORED == (
        b'{"v":1,"record":{"incarnation":"'
        + b"a" * 32
        + b'","address":"h:1","takeovers":[]},"mac":"ZhATkSCZR3EjLNdoAjh2LGQU7kjYa4IUkJigQw_PL2M"}'
    )


def test_a_release_that_knows_no_seals_reads_it() -> None:
    assert decode_record(OwnerRecord, STORED, key=KEY) == OWNER
    assert json.loads(STORED)["record"]["address"] == "h:1"


def test_a_record_that_was_moved_is_refused() -> None:
    """Of another job, another cluster, or another kind."""
    for key in (KEY.replace("jobs/1", "jobs/2"), KEY.replace("default", "other"), KEY.replace("owner", "graph"), ""):
        assert "its seal is not that of this cluster" in refusal(STORED, key=key)


def test_key_and_value_are_told_apart() -> None:
    """No value continues a key."""
    stored = SEAL.sealed("/a", b'{"b":1}')
    assert SEAL.opened("/a{", b'"b":1' + stored[-53:]) != b'"b":1}'


@given(st.data())
def test_no_byte_can_be_changed(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(STORED) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda one: one != STORED[at]))
    assert refusal(STORED[:at] + bytes([byte]) + STORED[at + 1 :])


@given(st.binary(max_size=200))
def test_nothing_else_is_a_record(stored: bytes) -> None:
    assert refusal(stored)
    if not stored.endswith(b'"}'):
        assert refusal(stored + STORED[-53:])


def test_the_key_of_another_cluster_opens_nothing() -> None:
    assert "security.cluster-key-file" in refusal(STORED, by=RecordSeal(ClusterKey(bytes(32))))


def test_unsealed_records_are_read_only_where_that_is_asked_for() -> None:
    """D-029: those of an earlier release. A wrong seal is never accepted."""
    unsealed = encode_record(OWNER)
    assert "an earlier release (docs/operations.md, Upgrades)" in refusal(unsealed)
    upgrading = RecordSeal(ClusterKey(bytes(range(32))), accepts_unsealed=True)
    assert opened(unsealed, by=upgrading) == opened(STORED, by=upgrading) == OWNER
    assert refusal(STORED, key=f"{KEY}2", by=upgrading)


def test_a_refusal_is_no_record_of_any_kind_whoever_writes_it() -> None:
    forged = SEAL.opened(KEY, b"")
    assert refusal(forged)
    with pytest.raises(UnreadableRecordError, match="is refused"):
        decode_record(LeaderRecord, forged, key=KEY)


def test_each_refusal_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    seal = RecordSeal(ClusterKey(bytes(32)))
    with caplog.at_level(logging.ERROR):
        for written in (STORED, STORED, STORED[:-9] + b'another"}'):
            seal.opened(KEY, written)
        seal.opened("/flinklike/\udcff\n", STORED)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    assert caplog.messages[0].startswith(f"{KEY!r} in etcd is refused: its seal")
    assert caplog.messages[1].startswith(r"'/flinklike/\udcff\n' in etcd")
    seal.opened(KEY, seal.sealed(KEY, encode_record(OWNER)))
    with caplog.at_level(logging.ERROR):
        seal.opened(KEY, STORED)
    assert len(caplog.messages) == 3, "it was right meanwhile"


def test_the_key_shows_nowhere() -> None:
    assert bytes(range(32)).hex() not in repr(vars(SEAL))

"""Operations of the KeyValueStore protocol as etcd's messages, and back. Keys are text here and bytes on the wire.

The cluster's keys are UTF-8; other bytes in keys of other clients become surrogates. With a seal, values are sealed
before a write and opened after a read (R38).
"""

from __future__ import annotations

from runtime.common.errors import OutcomeUnknownError
from runtime.highavailability.etcd.generated import flinklike_etcdpb_pb2 as pb
from runtime.highavailability.kv.key_value_store import (
    Compare,
    CompareOperator,
    CompareTarget,
    Delete,
    Get,
    KeyValue,
    Op,
    OpResult,
    Put,
    Txn,
    TxnResult,
    WatchBatch,
    WatchEvent,
)
from runtime.highavailability.record_seal import RecordSeal


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys with that prefix, as etcd wants it."""
    for index in range(len(prefix) - 1, -1, -1):
        if prefix[index] < 0xFF:
            return prefix[:index] + bytes([prefix[index] + 1])
    return b"\0"


def to_key(key: str) -> bytes:
    """The key's bytes in etcd."""
    return key.encode("utf-8", "surrogateescape")


def to_txn(txn: Txn, seal: RecordSeal | None) -> pb.TxnRequest:
    """A transaction with everything nested in it."""
    return pb.TxnRequest(
        compare=[_to_compare(condition) for condition in txn.conditions],
        success=[_to_op(op, seal) for op in txn.success],
        failure=[_to_op(op, seal) for op in txn.failure],
    )


def _to_compare(condition: Compare) -> pb.Compare:
    result = pb.Compare.EQUAL if condition.operator is CompareOperator.EQUAL else pb.Compare.NOT_EQUAL
    key = to_key(condition.key)
    if condition.target is CompareTarget.CREATE_REVISION:
        return pb.Compare(result=result, target=pb.Compare.CREATE, key=key, create_revision=condition.revision)
    return pb.Compare(result=result, target=pb.Compare.MOD, key=key, mod_revision=condition.revision)


def _to_op(op: Op, seal: RecordSeal | None) -> pb.RequestOp:
    match op:
        case Put():
            value = op.value if seal is None else seal.sealed(op.key, op.value)
            return pb.RequestOp(request_put=pb.PutRequest(key=to_key(op.key), value=value, lease=op.lease))
        case Delete():
            key = to_key(op.key)
            end = prefix_end(key) if op.is_prefix else b""
            return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=end))
        case Get():
            key = to_key(op.key)
            end = prefix_end(key) if op.is_prefix else b""
            return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=end, limit=op.limit))
        case Txn():
            return pb.RequestOp(request_txn=to_txn(op, seal))


def from_txn(txn: Txn, response: pb.TxnResponse, revision: int, seal: RecordSeal | None) -> TxnResult:
    """The answer; nested answers get the outer revision, at which their writes happened.

    Raises OutcomeUnknownError when the answer does not fit the operations of `txn` (R52).
    """
    ops = txn.success if response.succeeded else txn.failure
    if len(ops) != len(response.responses):
        message = f"etcd answers {len(response.responses)} operations of a transaction, and {len(ops)} were asked for"
        raise OutcomeUnknownError(message)
    results = tuple(_from_op(op, one, revision, seal) for op, one in zip(ops, response.responses, strict=True))
    return TxnResult(response.succeeded, revision, results)


_ANSWERS = {Put: "response_put", Get: "response_range", Delete: "response_delete_range", Txn: "response_txn"}


def _from_op(op: Op, answer: pb.ResponseOp, revision: int, seal: RecordSeal | None) -> OpResult:
    found = answer.WhichOneof("response")
    if found != _ANSWERS[type(op)]:
        message = f"etcd answers a {type(op).__name__} of a transaction by {found or 'nothing'}"
        raise OutcomeUnknownError(message)
    match op:
        case Get():
            return OpResult(kvs=tuple(from_kv(kv, seal) for kv in answer.response_range.kvs))
        case Delete():
            return OpResult(deleted=answer.response_delete_range.deleted)
        case Txn():
            return OpResult(txn=from_txn(op, answer.response_txn, revision, seal))
        case Put():
            return OpResult()


def from_kv(kv: pb.KeyValue, seal: RecordSeal | None) -> KeyValue:
    """One stored key."""
    key = kv.key.decode("utf-8", "surrogateescape")
    value = kv.value if seal is None else seal.opened(key, kv.value)
    return KeyValue(key, value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def to_range(
    key: str,
    *,
    is_prefix: bool,
    limit: int,
    after_key: str,
    revision: int,
    max_create_revision: int,
    newest_first: bool,
) -> pb.RangeRequest:
    """A linearizable read."""
    start = to_key(key)
    end = prefix_end(start) if is_prefix else b""
    if after_key >= key and after_key:
        start = to_key(after_key) + b"\0"
    request = pb.RangeRequest(
        key=start, range_end=end, limit=limit, revision=revision, max_create_revision=max_create_revision
    )
    if newest_first:
        request.sort_order = pb.RangeRequest.DESCEND
        request.sort_target = pb.RangeRequest.CREATE
    return request


def to_youngest(prefix: str) -> pb.RangeRequest:
    """A read of the key under a prefix that was changed last; the answer counts all keys of the prefix."""
    start = to_key(prefix)
    return pb.RangeRequest(
        key=start,
        range_end=prefix_end(start),
        limit=1,
        keys_only=True,
        sort_order=pb.RangeRequest.DESCEND,
        sort_target=pb.RangeRequest.MOD,
    )


def from_events(response: pb.WatchResponse, seal: RecordSeal | None) -> WatchBatch:
    """The events of one response; without fragments etcd never splits a revision over two."""
    events = tuple(_from_event(event, seal) for event in response.events)
    return WatchBatch(events[-1].kv.mod_revision, events)


def _from_event(event: pb.Event, seal: RecordSeal | None) -> WatchEvent:
    is_delete = event.type == pb.Event.DELETE
    # A deleted key has no value, and so no seal.
    return WatchEvent(from_kv(event.kv, None if is_delete else seal), is_delete)

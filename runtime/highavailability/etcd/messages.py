"""Our operations as etcd's messages and back. Keys are UTF-8 text on our side and bytes on the wire."""

from __future__ import annotations

from runtime.highavailability.etcd.generated import flinklike_etcdpb_pb2 as pb
from runtime.highavailability.kv import (
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


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys with that prefix, as etcd wants it."""
    for index in range(len(prefix) - 1, -1, -1):
        if prefix[index] < 0xFF:
            return prefix[:index] + bytes([prefix[index] + 1])
    return b"\0"


def to_txn(txn: Txn) -> pb.TxnRequest:
    """A transaction with everything nested in it."""
    return pb.TxnRequest(
        compare=[_to_compare(guard) for guard in txn.guards],
        success=[_to_op(op) for op in txn.success],
        failure=[_to_op(op) for op in txn.failure],
    )


def _to_compare(guard: Compare) -> pb.Compare:
    result = pb.Compare.EQUAL if guard.operator is CompareOperator.EQUAL else pb.Compare.NOT_EQUAL
    key = guard.key.encode()
    if guard.target is CompareTarget.CREATE_REVISION:
        return pb.Compare(result=result, target=pb.Compare.CREATE, key=key, create_revision=guard.revision)
    return pb.Compare(result=result, target=pb.Compare.MOD, key=key, mod_revision=guard.revision)


def _to_op(op: Op) -> pb.RequestOp:
    match op:
        case Put():
            return pb.RequestOp(request_put=pb.PutRequest(key=op.key.encode(), value=op.value, lease=op.lease))
        case Delete():
            key = op.key.encode()
            end = prefix_end(key) if op.is_prefix else b""
            return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=end))
        case Get():
            key = op.key.encode()
            end = prefix_end(key) if op.is_prefix else b""
            return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=end, limit=op.limit))
        case Txn():
            return pb.RequestOp(request_txn=to_txn(op))


def from_txn(response: pb.TxnResponse, revision: int) -> TxnResult:
    """The answer; nested answers get the outer revision, which is that of what they wrote."""
    return TxnResult(response.succeeded, revision, tuple(_from_op(op, revision) for op in response.responses))


def _from_op(op: pb.ResponseOp, revision: int) -> OpResult:
    match op.WhichOneof("response"):
        case "response_range":
            return OpResult(kvs=tuple(from_kv(kv) for kv in op.response_range.kvs))
        case "response_delete_range":
            return OpResult(deleted=op.response_delete_range.deleted)
        case "response_txn":
            return OpResult(txn=from_txn(op.response_txn, revision))
        case _:
            return OpResult()


def from_kv(kv: pb.KeyValue) -> KeyValue:
    """One stored key."""
    return KeyValue(kv.key.decode(), kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


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
    start = key.encode()
    end = prefix_end(start) if is_prefix else b""
    if after_key >= key and after_key:
        start = after_key.encode() + b"\0"
    request = pb.RangeRequest(
        key=start, range_end=end, limit=limit, revision=revision, max_create_revision=max_create_revision
    )
    if newest_first:
        request.sort_order = pb.RangeRequest.DESCEND
        request.sort_target = pb.RangeRequest.CREATE
    return request


def to_youngest(prefix: str) -> pb.RangeRequest:
    """The key under a prefix that was changed last; the answer counts all of them."""
    start = prefix.encode()
    return pb.RangeRequest(
        key=start,
        range_end=prefix_end(start),
        limit=1,
        keys_only=True,
        sort_order=pb.RangeRequest.DESCEND,
        sort_target=pb.RangeRequest.MOD,
    )


def from_events(response: pb.WatchResponse) -> WatchBatch:
    """The events of one response; without fragments etcd never splits a revision over two."""
    events = tuple(WatchEvent(from_kv(event.kv), event.type == pb.Event.DELETE) for event in response.events)
    return WatchBatch(events[-1].kv.mod_revision, events)

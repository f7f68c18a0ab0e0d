"""What a false etcd answers to a transaction, and says to a watch: what was asked for, or nothing is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from google.protobuf.message import DecodeError

from runtime.common.errors import OutcomeUnknownError
from runtime.highavailability.etcd import messages
from runtime.highavailability.etcd.generated import flinklike_etcdpb_pb2 as pb
from runtime.highavailability.kv.key_value_store import Delete, Get, Put, Txn, TxnResult
from tests.fuzz.surface import Surface

_ASKED = (
    Txn((), (Put("/a", b"1"), Get("/a")), (Get("/b"),)),
    Txn((), (Txn((), (Get("/c"),), (Delete("/c"),)), Put("/d", b"2")), (Txn((), (Put("/e", b"3"),)),)),
    Txn((), (), ()),
)


def _begin() -> Callable[[bytes], object]:
    def feed(data: bytes) -> object:
        if data[:1] == b"w":
            response = pb.WatchResponse.FromString(data[1:])
            return len(messages.from_events(response, None).events) if response.events else 0
        txn = _ASKED[data[0] % len(_ASKED)] if data else _ASKED[0]
        found = messages.from_txn(txn, pb.TxnResponse.FromString(data[1:]), 7, None)
        _check(txn, found)
        return found.succeeded

    return feed


def _check(txn: Txn, found: TxnResult) -> None:
    """Whoever has asked finds an answer to each operation."""
    ops = txn.success if found.succeeded else txn.failure
    assert len(ops) == len(found.results)
    for op, one in zip(ops, found.results, strict=True):
        assert (one.txn is not None) == isinstance(op, Txn)
        if isinstance(op, Txn) and one.txn is not None:
            _check(op, one.txn)


def _seeds() -> Sequence[bytes]:
    kv = pb.KeyValue(key=b"/a", value=b"1", create_revision=3, mod_revision=5, version=2)
    put, got = pb.ResponseOp(response_put=pb.PutResponse()), pb.ResponseOp(response_range=pb.RangeResponse(kvs=[kv]))
    nested = pb.ResponseOp(response_txn=pb.TxnResponse(succeeded=True, responses=[got]))
    event = pb.Event(type=pb.Event.PUT, kv=kv)
    return [
        b"\x00" + pb.TxnResponse(succeeded=True, responses=[put, got]).SerializeToString(),
        b"\x00" + pb.TxnResponse(responses=[got]).SerializeToString(),
        b"\x01" + pb.TxnResponse(succeeded=True, responses=[nested, put]).SerializeToString(),
        b"\x02" + pb.TxnResponse(succeeded=True).SerializeToString(),
        b"w" + pb.WatchResponse(events=[event, event]).SerializeToString(),
    ]


SURFACES = (Surface("etcd-answers", _begin, _seeds, (OutcomeUnknownError, DecodeError), prefix=1, smoke_inputs=1500),)

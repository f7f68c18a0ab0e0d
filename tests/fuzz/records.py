"""What is stored in etcd and in the storage: each record, sealed and not, each reader of the store, events, archives,
packs, the store's mark. Who reads promises to name what cannot be read, and to go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.common.ids import ClusterUuid, Incarnation, JobId
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways import dispatcher
from runtime.highavailability import records
from runtime.highavailability.jobs.fences import TaskManagerFences
from runtime.highavailability.jobs.job_reader import JobReader
from runtime.highavailability.jobs.payloads import PayloadCorruptError, Payloads
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Put, StoreRestoredError, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.leadership import cluster
from runtime.highavailability.leadership.registration import TaskManagerRegistry
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record
from runtime.highavailability.record_seal import RecordSeal
from runtime.highavailability.store_mark import StoreMark
from runtime.scheduler.core.job_events import decode_events
from runtime.security.cluster_key import ClusterKey
from tests.fuzz.surface import Surface
from tests.kit.control_plane.memory_objects import MemoryObjectStore
from tests.kit.rest.fakes import archived

_UNIT = Path(__file__).parents[1] / "unit"
_FORMS = _UNIT / "highavailability" / "stored_records.txt"
_EVENTS = sorted((_UNIT / "scheduler").glob("job_events.*.json"))
_LINES = [(name.decode(), data) for name, _, data in (one.partition(b" ") for one in _FORMS.read_bytes().splitlines())]
KINDS: dict[str, type[Any]] = {
    name: next(getattr(module, name) for module in (records, cluster, dispatcher) if hasattr(module, name))
    for name in dict.fromkeys(name for name, _ in _LINES)
}
"""Whatever was ever stored: a new record is a surface as soon as its form is recorded."""
_KINDS = list(KINDS.values())
_SEAL = RecordSeal(ClusterKey(b"k" * 32))
_KEY = "/flinklike/test/jobs/x"
_TOKENS = (b'"mac":"', b'"v":1', b'"record":{', b',"mac":"' + b"A" * 43 + b'"}', b'"inline":"', b'"events":[')


def _forms() -> list[tuple[int, bytes]]:
    return [(_KINDS.index(KINDS[name]), data) for name, data in _LINES]


# --- each record ----------------------------------------------------------------------------------------------


def _begin_records() -> Callable[[bytes], object]:
    def feed(data: bytes) -> object:
        kind, value = _KINDS[data[0] % len(_KINDS)] if data else _KINDS[0], data[1:]
        if data[:1] >= b"\x80":
            value = _SEAL.opened(_KEY, value)
        return decode_record(kind, value, key=_KEY)

    return feed


def _record_seeds() -> Sequence[bytes]:
    sealed = [bytes([0x80 + (0x80 // len(KINDS) - 1) * len(KINDS) + number]) for number in range(2)]
    plain = [bytes([number]) + data for number, data in _forms()]
    return [*plain, *(head + _SEAL.sealed(_KEY, data) for head in sealed for _, data in _forms())]


# --- who reads the store --------------------------------------------------------------------------------------

_KEYS = Keys.of_cluster("test")
_JOB = JobId("a" * 32)
_NAME = Incarnation("1" * 32)
_PLACES = {
    records.GraphRecord: _KEYS.graph(_JOB),
    records.OwnerRecord: _KEYS.owner(_JOB),
    records.EventsRecord: _KEYS.event(_JOB, 1),
    records.ResultRecord: _KEYS.result(_JOB),
    records.DoneRecord: _KEYS.done(_JOB),
    records.WantedRecord: _KEYS.wanted(_JOB),
    records.ClientRecord: _KEYS.client(_JOB),
    records.LeaderRecord: _KEYS.leader(7),
    records.TaskManagerRecord: _KEYS.task_manager(_NAME),
    records.FenceRecord: _KEYS.fence(_NAME, _JOB),
    cluster.ClusterRecord: _KEYS.cluster,
}


def _begin_readers() -> Callable[[bytes], object]:
    runner = asyncio.Runner()

    def feed(data: bytes) -> object:
        kind = _KINDS[data[0] % len(_KINDS)] if data else _KINDS[0]
        key = _PLACES.get(kind, _KEYS.job(_JOB) + data[:8].decode("latin-1"))
        return runner.run(_read_all(key, data[1:]))

    return feed


async def _read_all(key: str, value: bytes) -> None:
    store = MemoryKeyValueStore(LoopClock())
    await store.txn(Txn((), (Put(key, value),)), timeout=1)
    reader = JobReader(store, _KEYS, Payloads(MemoryObjectStore()), timeout=1)
    # What a leader, an owner and a TaskManager read of everybody: damage to one record is nobody else's end (R31).
    await reader.jobs()
    await reader.results([_JOB])
    await reader.dones([_JOB])
    await reader.done_jobs(limit=10)
    await reader.takeovers(_JOB)
    await TaskManagerFences(store, _KEYS, _NAME, SeededEntropy(1), timeout=1).read()
    await TaskManagerRegistry(store, _KEYS, SeededEntropy(1), timeout=1).task_managers()
    await _refused_at_most(reader.done(_JOB))
    await _refused_at_most(reader.events(_JOB))
    await _refused_at_most(cluster.stored_cluster(store, _KEYS, timeout=1))
    for stored in (await reader.jobs())[0]:
        await _refused_at_most(reader.load(stored.graph.graph))


async def _refused_at_most(read: Awaitable[object]) -> None:
    try:
        await read
    except (UnreadableRecordError, PayloadCorruptError, NotFoundError):
        return


# --- what records point to ------------------------------------------------------------------------------------


class _MarkFile:
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self) -> bytes | None:
        return self._data

    async def write(self, data: bytes, /) -> None:
        raise NotImplementedError


def _begin_documents() -> Callable[[bytes], object]:
    runner = asyncio.Runner()
    store = MemoryKeyValueStore(LoopClock())

    def feed(data: bytes) -> object:
        match data[:1]:
            case b"e":
                return decode_events(data[1:])
            case b"m":
                mark = StoreMark(store, _KEYS, ClusterUuid("c" * 32), _MarkFile(data[1:]), timeout=1)
                return runner.run(mark.check())
            case _:
                graph = ArchivedExecutionGraph.from_json(data[1:])
                return graph.to_json()

    return feed


def _document_seeds() -> Sequence[bytes]:
    mark = b'm{"cluster":"' + b"c" * 32 + b'","store_id":"1","revision":0}'
    return [*(b"e" + path.read_bytes() for path in _EVENTS), b"a" + archived().to_json(), mark]


SURFACES = (
    Surface(
        "records", _begin_records, _record_seeds, (UnreadableRecordError,), prefix=1, tokens=_TOKENS, smoke_inputs=1500
    ),
    Surface("readers", _begin_readers, lambda: [bytes([n]) + d for n, d in _forms()], (), prefix=1, tokens=_TOKENS),
    Surface(
        "documents",
        _begin_documents,
        _document_seeds,
        (InvalidInputError, StoreRestoredError),
        prefix=1,
        tokens=_TOKENS,
    ),
)

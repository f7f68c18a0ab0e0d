"""One edge of the running job: the accepted partitions of its producers, and the input gates of its consumers.

Invariants: a partition is here only after the event that accepted it is durable (R10), until it is deleted or its
producer is reset; a gate is handed out only when every partition that its consumer reads is here; an all-to-all gate is
one object for all consumers, or an index made once, so that P x P connections cost one entry per file, never one list
per pair. Each side may be without subtasks until its parallelism is decided (R66).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from runtime.common.exchange import InputShare
from runtime.common.ids import VertexId
from runtime.gateways.task import (
    ExchangeMode,
    InputGate,
    PartitionDescriptor,
    PartitionFile,
    PartitionKind,
    ResultPartitionSpec,
)
from runtime.jobgraph.graph import JobEdge

FOR_ALL_CONSUMERS = -1


class ExecutionEdge:
    """An edge with its results. `output` numbers it among the out-edges of its source."""

    __slots__ = (
        "_by_consumer",
        "_finished_consumers",
        "_is_broadcast",
        "_lost",
        "_missing",
        "_partitions",
        "_shared_gate",
        "_shares",
        "_widest",
        "consumer_parallelism",
        "edge",
        "inline_size_max",
        "is_dynamic",
        "mode",
        "output",
        "source_name",
        "subpartitions",
    )

    def __init__(
        self,
        edge: JobEdge,
        *,
        output: int,
        source_name: str,
        parallelism: int,
        consumer_parallelism: int,
        subpartitions: int,
        is_dynamic: bool,
        inline_size_max: int,
    ) -> None:
        """`parallelism`, `consumer_parallelism`: 0 while it is not decided.

        `is_dynamic`: rows are written into `subpartitions` before it is known how many subtasks will read them.
        """
        self.edge = edge
        self.mode = edge.mode
        self.output = output
        self.source_name = source_name
        self.consumer_parallelism = consumer_parallelism
        self.subpartitions = subpartitions
        self.is_dynamic = is_dynamic
        self.inline_size_max = inline_size_max
        self._partitions: list[PartitionDescriptor | None] = [None] * parallelism
        self._missing = parallelism
        self._shares: tuple[InputShare, ...] = ()
        self._is_broadcast = False
        self._widest = 1
        self._lost: set[int] = set()
        self._finished_consumers: set[int] = set()
        self._shared_gate: InputGate | None = None
        self._by_consumer: dict[int, list[tuple[int, PartitionFile]]] | None = None

    @property
    def source(self) -> VertexId:
        """The producing vertex."""
        return self.edge.source

    @property
    def target(self) -> VertexId:
        """The consuming vertex."""
        return self.edge.target

    @property
    def is_complete(self) -> bool:
        """True when every producer's partition is here."""
        return self._missing == 0 and not self._lost and bool(self._partitions)

    def producers_decided(self, parallelism: int) -> None:
        """The source has this many subtasks from now on."""
        self._partitions = [None] * parallelism
        self._missing = parallelism

    def consumers_decided(self, parallelism: int, shares: tuple[InputShare, ...], *, is_broadcast: bool) -> None:
        """The target has this many subtasks from now on, with these shares, or all rows for each of them."""
        self.consumer_parallelism = parallelism
        self._shares = shares
        self._is_broadcast = is_broadcast

    def spec(self) -> ResultPartitionSpec:
        """The partition that a producer writes for this edge."""
        return ResultPartitionSpec(
            output=self.output,
            mode=self.mode,
            key_columns=self.edge.key_columns,
            consumer_parallelism=self.subpartitions if self.is_dynamic else self.consumer_parallelism,
            inline_size_max=self.inline_size_max,
            is_dynamic=self.is_dynamic,
        )

    @property
    def mode_read(self) -> ExchangeMode:
        """How consumers read it: a divided input that turned out small is broadcast."""
        return ExchangeMode.BROADCAST if self._is_broadcast else self.mode

    @property
    def reads_all(self) -> bool:
        """True when every consumer reads every producer's partition."""
        return self.mode is not ExchangeMode.FORWARD

    def producers_of(self, consumer: int) -> Sequence[int]:
        """The producers whose partitions a consumer reads."""
        return (consumer,) if self.mode is ExchangeMode.FORWARD else range(len(self._partitions))

    def consumers_of(self, producer: int) -> Sequence[int]:
        """The consumers that read a producer's partition."""
        if self.mode is ExchangeMode.FORWARD and self.consumer_parallelism:
            return (producer,)
        return range(self.consumer_parallelism)

    def has_inputs_of(self, consumer: int) -> bool:
        """True when every partition that a consumer reads is here."""
        if self.is_complete:
            return True
        return self.mode is ExchangeMode.FORWARD and self.has(consumer)

    def has(self, producer: int) -> bool:
        """True when a producer's partition is available: accepted, neither deleted nor found unreadable since."""
        return self._partitions[producer] is not None and producer not in self._lost

    def accept(self, producer: int, partition: PartitionDescriptor) -> None:
        """Add the partition of one producer, which is durable."""
        assert self._partitions[producer] is None, (self.edge, producer)
        self._partitions[producer] = partition
        self._missing -= 1
        self._shared_gate = self._by_consumer = None

    def lose(self, producer: int) -> None:
        """Mark a partition as unreadable: no consumer gets it any more."""
        self._lost.add(producer)

    def mixed_kinds(self) -> str:
        """An error text if some producers returned rows and others JSON values, else ""."""
        kinds = {partition.kind for partition in self._present()}
        if len(kinds) < 2:
            return ""
        return (
            f"the subtasks of {self.source_name} returned DataFrames and JSON values: "
            "all subtasks of a vertex have to return the same kind"
        )

    def consumer_finished(self, consumer: int) -> tuple[int, ...]:
        """Note a consumer that will not read again. Returns the producers whose partitions no consumer needs now."""
        self._finished_consumers.add(consumer)
        return () if self.is_needed(consumer) else tuple(self.producers_of(consumer))

    def consumer_reset(self, consumer: int) -> None:
        """Note that the consumer will read again."""
        self._finished_consumers.discard(consumer)

    def is_needed(self, producer: int) -> bool:
        """True while a consumer has not read the partition of a producer."""
        # In forward mode a consumer has its producer's number; in all others every consumer reads every producer.
        if self.mode is ExchangeMode.FORWARD:
            return producer not in self._finished_consumers
        return not self.consumer_parallelism or len(self._finished_consumers) < self.consumer_parallelism

    def partition(self, producer: int) -> PartitionDescriptor | None:
        """The accepted partition of a producer, None when it is not available."""
        return self._partitions[producer]

    def release(self, producer: int) -> PartitionDescriptor | None:
        """Forget a partition and return it."""
        released, self._partitions[producer] = self._partitions[producer], None
        if released is not None:
            self._missing += 1
        self._lost.discard(producer)
        self._shared_gate = self._by_consumer = None
        return released

    def gate(self, consumer: int) -> InputGate:
        """The input gate of the consumer with that subtask index."""
        assert self.has_inputs_of(consumer), (self.edge, consumer, self._missing, self._lost)
        if self.mode is ExchangeMode.FORWARD:
            return self._new_gate([partition for partition in (self._partitions[consumer],) if partition is not None])
        if self.is_dynamic:
            return self._dynamic_gate(consumer)
        if self._shared_gate is None and self._by_consumer is None:
            self._prepare()
        if self._shared_gate is not None:
            return self._shared_gate
        return self._new_gate(self._partitions_for(consumer))

    def _dynamic_gate(self, consumer: int) -> InputGate:
        present = self._present()
        if self._is_broadcast or any(one.kind is PartitionKind.JSON for one in present):
            if self._shared_gate is None:
                described = _described([(one, one.files) for one in _without_empty(present)])
                self._shared_gate = self._new_gate(described, InputShare(0, self.subpartitions))
            return self._shared_gate
        share = self._shares[consumer]
        if share.split_input != self.edge.input_index:
            share = InputShare(share.first, share.end)
        index = self._by_consumer if self._by_consumer is not None else self._indexed(present)
        files: dict[int, list[PartitionFile]] = defaultdict(list)
        for first in range(share.first - self._widest + 1, share.end):
            for producer, file in index.get(first, ()):
                if first + max(file.span, 1) > share.first:
                    files[producer].append(file)
        return self._new_gate(self._with_files(files), share)

    def _present(self) -> list[PartitionDescriptor]:
        """Those of tasks that got no split say nothing, unless there are no others (R12)."""
        present = [partition for partition in self._partitions if partition is not None]
        return [one for one in present if one.kind is not PartitionKind.NOTHING] or present[:1]

    def _prepare(self) -> None:
        present = self._present()
        if all(file.consumer == FOR_ALL_CONSUMERS for partition in present for file in partition.files):
            self._shared_gate = self._new_gate(_described([(one, one.files) for one in _without_empty(present)]))
            return
        self._indexed(present)

    def _indexed(self, present: Sequence[PartitionDescriptor]) -> dict[int, list[tuple[int, PartitionFile]]]:
        """The files by the first consumer or subpartition that they are for, each with its producer."""
        index: dict[int, list[tuple[int, PartitionFile]]] = defaultdict(list)
        for producer, partition in enumerate(present):
            for file in partition.files:
                index[file.consumer].append((producer, file))
        self._by_consumer = index
        self._widest = max((file.span for partition in present for file in partition.files), default=1)
        return index

    def _partitions_for(self, consumer: int) -> list[PartitionDescriptor]:
        """Descriptors with the files for one consumer only: another one's names would be P x P strings on the wire."""
        assert self._by_consumer is not None, self.edge
        files: dict[int, list[PartitionFile]] = defaultdict(list)
        for key in (consumer, FOR_ALL_CONSUMERS):
            for producer, file in self._by_consumer.get(key, ()):
                files[producer].append(file)
        return self._with_files(files)

    def _with_files(self, files: Mapping[int, Sequence[PartitionFile]]) -> list[PartitionDescriptor]:
        """The producers that have some of them; one without any stays for the schema."""
        present = self._present()
        chosen = sorted(files.items()) or [(0, ())]
        return _described([(present[producer], tuple(found)) for producer, found in chosen])

    def _new_gate(self, partitions: list[PartitionDescriptor], share: InputShare | None = None) -> InputGate:
        return InputGate(
            source_name=self.source_name,
            mode=self.mode,
            key_columns=self.edge.key_columns,
            partitions=tuple(partitions),
            share=share,
            subpartitions=self.subpartitions if share is not None else 0,
        )


def _described(
    chosen: list[tuple[PartitionDescriptor, tuple[PartitionFile, ...]]],
) -> list[PartitionDescriptor]:
    """With these files, and the schema in the first only while it is the same: wide ones would not fit P times."""
    first = chosen[0][0].schema
    # Written out: dataclasses.replace takes four times as long, and this runs P x P times.
    return [
        PartitionDescriptor(
            one.partition_id,
            one.kind,
            one.directory,
            "" if number and one.schema == first else one.schema,
            files,
            one.inline,
        )
        for number, (one, files) in enumerate(chosen)
    ]


def _without_empty(partitions: list[PartitionDescriptor]) -> list[PartitionDescriptor]:
    """The partitions without empty parquet ones; one empty partition stays for the schema when there are no rows."""
    filled = [one for one in partitions if one.files or one.kind is PartitionKind.JSON]
    return filled or partitions[:1]

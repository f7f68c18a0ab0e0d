"""One edge of the running job: the accepted partitions of its producers, and what its consumers read of them.

Invariants: a partition is here only after the event that accepted it is durable (R10); gates are handed out only when
every producer's partition is here; an all-to-all gate is one object for all consumers, or an index made once, so that
P x P connections cost one entry per file, never one list per pair.
"""

from __future__ import annotations

from collections import defaultdict

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
        "_accepted",
        "_by_consumer",
        "_finished_consumers",
        "_partitions",
        "_shared_gate",
        "consumer_parallelism",
        "edge",
        "inline_size_max",
        "mode",
        "output",
        "source_name",
    )

    def __init__(
        self,
        edge: JobEdge,
        *,
        output: int,
        source_name: str,
        parallelism: int,
        consumer_parallelism: int,
        inline_size_max: int,
    ) -> None:
        self.edge = edge
        self.mode = edge.mode
        self.output = output
        self.source_name = source_name
        self.consumer_parallelism = consumer_parallelism
        self.inline_size_max = inline_size_max
        self._partitions: list[PartitionDescriptor | None] = [None] * parallelism
        self._accepted = 0
        self._finished_consumers = 0
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
        """True when every producer's partition is accepted."""
        return self._accepted == len(self._partitions)

    def spec(self) -> ResultPartitionSpec:
        """What a producer has to write for this edge."""
        return ResultPartitionSpec(
            output=self.output,
            mode=self.mode,
            key_columns=self.edge.key_columns,
            consumer_parallelism=self.consumer_parallelism,
            inline_size_max=self.inline_size_max,
        )

    def accept(self, producer: int, partition: PartitionDescriptor) -> None:
        """The partition of one producer is durable."""
        assert self._partitions[producer] is None, (self.edge, producer)
        self._partitions[producer] = partition
        self._accepted += 1

    def mixed_kinds(self) -> str:
        """What is wrong if some producers returned rows and others JSON values, "" if nothing is."""
        kinds = {partition.kind for partition in self._partitions if partition is not None}
        if len(kinds) < 2:
            return ""
        return (
            f"the subtasks of {self.source_name} returned DataFrames and JSON values: "
            "all subtasks of a vertex have to return the same kind"
        )

    def consumer_finished(self, consumer: int) -> tuple[int, ...]:
        """Count a consumer that will not read again. Returns the producers whose partitions nobody needs any more."""
        self._finished_consumers += 1
        if self.mode is ExchangeMode.FORWARD:
            return (consumer,)
        if self._finished_consumers == self.consumer_parallelism:
            return tuple(range(len(self._partitions)))
        return ()

    def release(self, producer: int) -> PartitionDescriptor | None:
        """Forget a partition that nobody needs. Returns what it was."""
        released, self._partitions[producer] = self._partitions[producer], None
        self._shared_gate = self._by_consumer = None
        return released

    def gate(self, consumer: int) -> InputGate:
        """What consumer number `consumer` reads."""
        assert self.is_complete, (self.edge, self._accepted)
        if self.mode is ExchangeMode.FORWARD:
            return self._new_gate(self._present()[consumer : consumer + 1])
        if self._shared_gate is None and self._by_consumer is None:
            self._prepare()
        if self._shared_gate is not None:
            return self._shared_gate
        return self._new_gate(self._partitions_for(consumer))

    def _present(self) -> list[PartitionDescriptor]:
        present = [partition for partition in self._partitions if partition is not None]
        assert len(present) == len(self._partitions), self.edge
        return present

    def _prepare(self) -> None:
        present = self._present()
        if all(file.consumer == FOR_ALL_CONSUMERS for partition in present for file in partition.files):
            self._shared_gate = self._new_gate(_described([(one, one.files) for one in _without_empty(present)]))
            return
        self._by_consumer = defaultdict(list)
        for producer, partition in enumerate(present):
            for file in partition.files:
                self._by_consumer[file.consumer].append((producer, file))

    def _partitions_for(self, consumer: int) -> list[PartitionDescriptor]:
        """Descriptors with the files for one consumer only: another one's names would be P x P strings on the wire."""
        assert self._by_consumer is not None, self.edge
        files: dict[int, list[PartitionFile]] = defaultdict(list)
        for key in (consumer, FOR_ALL_CONSUMERS):
            for producer, file in self._by_consumer.get(key, ()):
                files[producer].append(file)
        present = self._present()
        chosen = sorted(files.items()) or [(0, [])]
        return _described([(present[producer], tuple(found)) for producer, found in chosen])

    def _new_gate(self, partitions: list[PartitionDescriptor]) -> InputGate:
        return InputGate(
            source_name=self.source_name,
            mode=self.mode,
            key_columns=self.edge.key_columns,
            partitions=tuple(partitions),
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
    """Parquet partitions without files are left out, but for one that carries the schema when there are no rows."""
    filled = [one for one in partitions if one.files or one.kind is PartitionKind.JSON]
    return filled or partitions[:1]

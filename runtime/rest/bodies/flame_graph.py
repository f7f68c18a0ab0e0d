"""From sampled stacks to the tree of a flame graph. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from runtime.gateways.task_executor import CLUSTER_FRAME, FRAMES_MAX, SampledStack
from runtime.rest.bodies.schema.flame_graphs import FlameNode


class FlameType(Enum):
    """Which stacks: all, those of threads that ran, or of those that waited. Only main threads are known to run."""

    FULL = "FULL"
    ON_CPU = "ON_CPU"
    OFF_CPU = "OFF_CPU"

    def takes(self, stack: SampledStack) -> bool:
        """True for a stack that the graph shows."""
        return self is FlameType.FULL or stack.is_on_cpu is (self is FlameType.ON_CPU)


def flame_graph(stacks: Iterable[SampledStack], type_: FlameType) -> FlameNode:
    """The tree, from its root on."""
    root: FlameNode = {"name": "root", "value": 0, "children": []}
    below: dict[tuple[int, str], FlameNode] = {}
    """By the node above, which the tree keeps, and the name."""
    for stack in stacks:
        if not type_.takes(stack):
            continue
        root["value"] += stack.count
        above = root
        for name in stack.frames[:FRAMES_MAX]:
            node = below.get((id(above), name))
            if node is None:
                node = below[id(above), name] = {"name": name, "value": 0, "children": []}
                above["children"].append(node)
            node["value"] += stack.count
            above = node
    root["children"].sort(key=lambda one: one["name"] == CLUSTER_FRAME)  # users' code first
    return root

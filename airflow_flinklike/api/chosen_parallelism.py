"""Which operators of a pipeline leave their parallelism to the cluster: those that the user has given none.

Operators that forward edges join have one parallelism. Where one of them has its own, all have it. An operator without
consumers writes or returns something, which code that expects all rows does once: with those that forward edges join
with it, it runs once unless it says parallelism="auto".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_flinklike.api.operator_graph import OperatorLink, OperatorNode
from airflow_flinklike.api.operator_options import AUTO
from airflow_flinklike.exceptions import PipelineError
from runtime.common.exchange import ExchangeMode


def settled(nodes: Mapping[str, OperatorNode], links: Sequence[OperatorLink]) -> dict[str, OperatorNode]:
    """The operators with their final parallelism. Raises PipelineError for options that then have no effect."""
    found = dict(nodes)
    read = {link.source for link in links}
    for group in _groups(found, links):
        is_asked = any(found[name].is_auto_asked for name in group)
        if not is_asked and not read.issuperset(group):
            found |= {name: _with_parallelism(found[name], 1) for name in group}
    _check_options(found, links)
    return found


def join(nodes: dict[str, OperatorNode], links: Sequence[OperatorLink], name: str) -> None:
    """An operator has a parallelism of its own: those that forward edges join with it have it, too.

    Raises PipelineError where they ask for another one.
    """
    wanted = nodes[name].chaining.parallelism
    todo = [name]
    while todo:
        here = todo.pop()
        for other in _neighbours(here, links):
            if nodes[other].is_auto:
                if nodes[other].is_auto_asked:
                    message = (
                        f"operator {other!r} has parallelism {AUTO!r}, and forward edges join it with {name!r}, which "
                        f"has {wanted}: use rebalance() or hash() between them, or leave it out"
                    )
                    raise PipelineError(message)
                nodes[other] = _with_parallelism(nodes[other], wanted)
                todo.append(other)


def _with_parallelism(node: OperatorNode, parallelism: int) -> OperatorNode:
    return replace(node, chaining=replace(node.chaining, parallelism=parallelism))


def _neighbours(name: str, links: Sequence[OperatorLink]) -> list[str]:
    forward = [link for link in links if link.mode is ExchangeMode.FORWARD]
    return [one.target for one in forward if one.source == name] + [one.source for one in forward if one.target == name]


def _groups(nodes: Mapping[str, OperatorNode], links: Sequence[OperatorLink]) -> list[set[str]]:
    """The operators without a parallelism of their own that forward edges join."""
    left = {name for name, node in nodes.items() if node.is_auto}
    groups = []
    while left:
        todo, group = [min(left)], set[str]()
        while todo:
            name = todo.pop()
            if name in left:
                left.discard(name)
                group.add(name)
                todo += _neighbours(name, links)
        groups.append(group)
    return groups


def _check_options(nodes: Mapping[str, OperatorNode], links: Sequence[OperatorLink]) -> None:
    for name, node in nodes.items():
        if node.rows_per_task is not None and not node.is_auto:
            message = f"operator {name!r}: rows_per_task has no effect, since {_why_fixed(node)}"
            raise PipelineError(message)
    for link in links:
        if (link.splittable or link.broadcast_below is not None) and not nodes[link.target].is_auto:
            message = (
                f"operator {link.target!r}: splittable and broadcast_below of hash() have no effect, since "
                f"{_why_fixed(nodes[link.target])}"
            )
            raise PipelineError(message)


def _why_fixed(node: OperatorNode) -> str:
    number = node.chaining.parallelism
    if number == 1:
        return "its parallelism is 1: what has no consumers runs once, unless it has parallelism='auto'"
    return f"its parallelism is {number}: leave that out, and the cluster chooses it"

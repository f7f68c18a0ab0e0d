"""When a job's requirements are declared anew.

The job declares its requirements when they rise, when they have fallen to the slots that it holds, and in between
whenever they have fallen by an eighth: a job with 500 short subtasks declares about forty times, not five hundred, and
never asks for more than an eighth too many slots.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.common.ids import Incarnation
from runtime.common.spark_conf import static_conf
from runtime.common.spark_environments import with_jars
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.resource_manager import JobRequirements, ResourceRequirement
from runtime.gateways.task import ResourceProfile
from runtime.jobgraph.graph import JobGraph, OperatorKind, ScriptCode
from runtime.scheduler.core.effects import DeclareRequirements
from runtime.scheduler.core.scheduler import Scheduler

FALL_SHOWN_FRACTION = 8

_Sort = tuple[ResourceProfile, tuple[Incarnation, ...]]


@dataclass(frozen=True, slots=True)
class SparkNeeds:
    """What a job needs of a TaskManager's Spark, as fields of JobRequirements."""

    static_conf: bytes = b""
    needs_spark: bool = False
    script_conf: bytes = b""
    is_application: bool = False


def spark_needs(graph: JobGraph) -> SparkNeeds:
    """A lone function may do without Spark; every other kind of code is written against a session."""
    static = static_conf(graph.spark_conf)
    is_application = any(vertex.is_jar for vertex in graph.vertices)
    if not is_application:  # an application has the paths of its jars in its own conf
        static = with_jars(static, [(jar.sha256, jar.name) for jar in graph.jars])
    operators = [operator for vertex in graph.vertices for operator in vertex.operators]
    needs_spark = bool(static) or any(operator.kind is not OperatorKind.FUNCTION for operator in operators)
    scripts = [operator.code for operator in operators if isinstance(operator.code, ScriptCode)]
    script = {key: value for code in scripts for key, value in static_conf(code.builder_conf).items()}
    return SparkNeeds(_document(static), needs_spark, _document(script), is_application)


def _document(conf: Mapping[str, str]) -> bytes:
    return json.dumps(conf, sort_keys=True).encode() if conf else b""


class DeclaredRequirements:
    """The requirements that a job has declared last."""

    __slots__ = ("_declared", "_shunned", "_spark_needs", "_unreachable")

    def __init__(self) -> None:
        self._declared: tuple[ResourceRequirement, ...] = ()
        self._unreachable: tuple[Incarnation, ...] = ()
        self._shunned: tuple[Incarnation, ...] = ()
        self._spark_needs: SparkNeeds | None = None

    def is_due(
        self,
        requirements: tuple[ResourceRequirement, ...],
        *,
        slots_held: int,
        unreachable: tuple[Incarnation, ...] = (),
        shunned: tuple[Incarnation, ...] = (),
    ) -> bool:
        """True if requirements differ so much from those declared last that they have to be declared."""
        if unreachable != self._unreachable or shunned != self._shunned:
            return bool(requirements or self._declared)
        if requirements == self._declared:
            return False
        wanted, declared = _counts(requirements), _counts(self._declared)
        if wanted.keys() != declared.keys() or any(count > declared[profile] for profile, count in wanted.items()):
            return True
        before, now = sum(declared.values()), sum(wanted.values())
        return now <= slots_held or (before - now) * FALL_SHOWN_FRACTION >= before

    def update(self, graph: ExecutionGraph, scheduler: Scheduler | None) -> list[DeclareRequirements]:
        """The declaration that is due now, if one is."""
        if scheduler is None:
            return []
        needs = scheduler.slot_needs()
        is_due = self.is_due(
            needs.requirements,
            slots_held=needs.held,
            unreachable=needs.unreachable,
            shunned=needs.shunned,
        )
        if not is_due:
            return []
        self._shunned = needs.shunned
        return [DeclareRequirements(self.declare(graph, needs.requirements, needs.unreachable))]

    def declare(
        self,
        graph: ExecutionGraph,
        requirements: tuple[ResourceRequirement, ...],
        unreachable: tuple[Incarnation, ...] = (),
    ) -> JobRequirements:
        """Remember requirements as declared. Returns the declaration."""
        self._declared = requirements
        self._unreachable = unreachable
        if requirements and self._spark_needs is None and graph.job_graph is not None:
            self._spark_needs = spark_needs(graph.job_graph)
        needs = self._spark_needs or SparkNeeds()
        return JobRequirements(
            graph.job_id,
            graph.epoch,
            requirements,
            unreachable,
            static_conf=needs.static_conf,
            needs_spark=needs.needs_spark,
            script_conf=needs.script_conf,
            is_application=needs.is_application,
            shunned=self._shunned,
        )


def _counts(requirements: tuple[ResourceRequirement, ...]) -> dict[_Sort, int]:
    return {(requirement.profile, requirement.without): requirement.count for requirement in requirements}

"""Where the job of a task waits for slots: its queue or its DAG's team, and the weight of the task."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow_flinklike.client import QueuePlace
from runtime.common.shares import PRIORITY_MAX, PRIORITY_MIN

if TYPE_CHECKING:
    from airflow.sdk import Context

_RELATIVES = {"downstream": False, "upstream": True}
"""Rules that add the weights of other tasks -> whether of those before the task."""
_STRATEGY = re.compile(r"_(Absolute|Downstream|Upstream)PriorityWeightStrategy")
"""The classes of Airflow's rules, which a task of Airflow 3.0 has in place of their names."""


def place_of(task: Any, context: Context, queue: str) -> QueuePlace:
    """`queue`: what the task names. The team is that of the run (Airflow 3.3), "" where Airflow has none."""
    team = str(getattr(context.get("dag_run"), "team_name", None) or "")
    return QueuePlace(queue, max(PRIORITY_MIN, min(PRIORITY_MAX, weight_of(task))), team)


def weight_of(task: Any) -> int:
    """The effective priority weight of the task, as Airflow's scheduler counts it; with a rule of a user its own."""
    own, is_upstream = int(task.priority_weight), _RELATIVES.get(_rule_of(task))
    if is_upstream is None or not task.has_dag():
        return own
    relatives: Iterable[str] = task.get_flat_relative_ids(upstream=is_upstream)
    return own + sum(int(task.dag.task_dict[one].priority_weight) for one in relatives)


def _rule_of(task: Any) -> str:
    found = _STRATEGY.fullmatch(type(task.weight_rule).__name__)
    return found[1].lower() if found else str(getattr(task.weight_rule, "value", task.weight_rule))

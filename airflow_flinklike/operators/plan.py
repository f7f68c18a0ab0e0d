"""PlanField: the plan of a job, as `flinklike explain` shows it, among the rendered fields of its task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinklike.api.explain import explain_graph

if TYPE_CHECKING:
    from airflow.sdk import Context


class PlanField:
    """The value of the template field `plan` until the worker renders the fields.

    Airflow calls `resolve` of an object in a field. The field is the last one, so the others are rendered before.
    """

    def resolve(self, context: Context) -> str | None:
        """The plan as text, or why there is none. The submit raises errors of the job, this does not."""
        task: Any = context.get("task")
        if task is None or task.pipeline is None:
            return None
        try:
            return explain_graph(task.build_program(context).graph).to_text()
        except Exception as error:  # noqa: BLE001 - user code may raise anything, and the submit raises it again
            return f"cannot be shown: {type(error).__name__}: {error}"

    def serialize(self) -> str:
        """The value in the serialized DAG."""
        return "shown when the task runs"


PLAN = PlanField()

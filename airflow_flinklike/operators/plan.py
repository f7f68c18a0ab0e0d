"""The plan of a task's job among its rendered fields: chains, exchanges, regions and slots, as `flinklike explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinklike.api.explain import explain_graph

if TYPE_CHECKING:
    from airflow.sdk import Context


class PlanField:
    """The value of the template field `plan` until fields are rendered, which happens in the worker.

    Airflow asks an object with `resolve` for its value. The field stands last, so the others are rendered by then.
    """

    def resolve(self, context: Context) -> str | None:
        """The text, or why there is none: what is wrong with the job is raised when it is submitted."""
        task: Any = context.get("task")
        if task is None or task.pipeline is None:
            return None
        try:
            return explain_graph(task.build_program(context).graph).to_text()
        except Exception as error:  # noqa: BLE001 - user code is built here; the submit raises what this tells
            return f"cannot be shown: {type(error).__name__}: {error}"

    def serialize(self) -> str:
        """What the DAG itself shows."""
        return "shown when the task runs"


PLAN = PlanField()

"""`@task.flinklike_branch`: a function on the cluster chooses the tasks that run next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_flinklike.airflow_version import BranchMixIn
from airflow_flinklike.decorators.flinklike import FlinklikeDecoratedOperator, decorator_of
from airflow_flinklike.exceptions import PipelineError

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.bases.decorator import TaskDecorator

    from airflow_flinklike.client import FlinklikeClient, JobExecutionResult
    from airflow_flinklike.hooks.connection import ClusterAccess


class FlinklikeBranchOperator(FlinklikeDecoratedOperator, BranchMixIn):
    """The operator behind `@task.flinklike_branch`, with the parameters of FlinklikeDecoratedOperator.

    The function returns the id of a task or a task group downstream, several of them, or None for none; all other tasks
    directly downstream are skipped, as with `@task.branch`.
    """

    custom_operator_name = "@task.flinklike_branch"
    inherits_from_skipmixin = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not self.waits_for_value:
            message = (
                f"task {self.task_id!r}: a branch is chosen by the job's value, so wait_for_completion must be True"
            )
            raise PipelineError(message)

    def value_of(
        self, context: Context, client: FlinklikeClient, access: ClusterAccess, result: JobExecutionResult
    ) -> Any:
        """Report the job's end, and skip what its value does not choose. Raises as without branches."""
        return self.do_branch(context, super().value_of(context, client, access, result))


def flinklike_branch_task(
    python_callable: Callable[..., Any] | None = None,
    multiple_outputs: bool | None = None,  # noqa: FBT001 - Airflow's signature of every task decorator
    **kwargs: Any,
) -> TaskDecorator:
    """Have a function on the cluster choose the next tasks. Takes the arguments of FlinklikeBranchOperator."""
    return decorator_of(FlinklikeBranchOperator, python_callable, multiple_outputs=multiple_outputs, **kwargs)

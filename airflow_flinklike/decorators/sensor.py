"""`@task.flinklike_sensor`: a function on the cluster says whether the sensor is done. Each poke is one job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_flinklike.api.poke import Poke
from airflow_flinklike.decorators.flinklike import FlinklikeDecoratedOperator, decorator_of
from airflow_flinklike.exceptions import PipelineError

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.bases.decorator import TaskDecorator


class FlinklikePokeOperator(FlinklikeDecoratedOperator, BaseSensorOperator):
    """The operator behind `@task.flinklike_sensor`, with the parameters of FlinklikeDecoratedOperator and of sensors.

    The function returns a truth value, Airflow's PokeReturnValue, or `{"is_done": ..., "xcom_value": ...}` where the
    TaskManagers have no Airflow. A poke whose worker stops is not adopted: the cluster cancels its job after
    `orphan_timeout`, and the next try pokes again.
    """

    custom_operator_name = "@task.flinklike_sensor"
    is_repeated = True

    def __init__(self, *, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(deferrable=False, **kwargs)
        if deferrable:
            message = f"task {self.task_id!r}: each poke is a job, and none is deferred: use mode='reschedule'"
            raise PipelineError(message)
        if not self.waits_for_value:
            message = f"task {self.task_id!r}: a poke is the job's value, so wait_for_completion must be True"
            raise PipelineError(message)

    def cluster_function(self) -> Callable[..., Any]:
        """The function, whose answer becomes a JSON object."""
        return Poke(super().cluster_function())

    def execute(self, context: Context) -> Any:
        """Poke as every sensor, until the function says that it is done. Returns its xcom_value."""
        self.explain()
        return BaseSensorOperator.execute(self, context)

    def poke(self, context: Context) -> PokeReturnValue:
        """Run one job."""
        answer = self.run_job(context)
        return PokeReturnValue(is_done=answer["is_done"], xcom_value=answer["xcom_value"])


def flinklike_sensor_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """Wait until a function on the cluster is done. Takes the arguments of FlinklikePokeOperator."""
    kwargs.pop("multiple_outputs", None)
    return decorator_of(FlinklikePokeOperator, python_callable, multiple_outputs=False, **kwargs)

"""FlinklikeClusterSensor waits for free slots of the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_flinklike.airflow_version import AirflowFailException, conf
from airflow_flinklike.exceptions import ClusterUnavailableError
from airflow_flinklike.hooks.flinklike import DEFAULT_CONN_ID, FlinklikeHook
from airflow_flinklike.triggers.conditions import ClusterWish, look_at_cluster
from airflow_flinklike.triggers.job import error_of_event
from airflow_flinklike.triggers.sensing import FlinklikeClusterTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class FlinklikeClusterSensor(BaseSensorOperator):
    """Succeeds when the cluster has enough free slots. Their number is the XCom. A cluster without an answer has none.

    It reserves nothing: another job may take a free slot a moment later. A job that finds no slot waits for one by
    itself. The sensor keeps large jobs from queueing behind each other, and a DAG from starting without a cluster.

    :param free_slots: number of slots, 1 by default; templated
    :param spark: True: only slots of TaskManagers that have Spark count
    :param spark_profile: only slots of TaskManagers with that `taskmanager.spark.profile` count
    :param flinklike_conn_id: the connection to the cluster
    :param deferrable: wait in the triggerer instead of in a worker slot
    """

    template_fields: Collection[str] = ("free_slots", "spark_profile", "flinklike_conn_id")
    ui_color = "#e8f0fb"

    def __init__(
        self,
        *,
        free_slots: int | str = 1,
        spark: bool = False,
        spark_profile: str = "",
        flinklike_conn_id: str = DEFAULT_CONN_ID,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: timedelta | float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.free_slots = free_slots
        self.spark = spark
        self.spark_profile = spark_profile
        self.flinklike_conn_id = flinklike_conn_id
        self.deferrable = deferrable

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once. A deferrable sensor defers when there are too few slots."""
        del context
        wish = self._wish()
        try:
            with FlinklikeHook(self.flinklike_conn_id, retry_for=0.0).get_conn() as client:
                look = client.run(look_at_cluster(wish))
        except ClusterUnavailableError as error:
            self.log.info("%s", error)
        else:
            self.log.info("%s, %d wanted", look, wish.free_slots)
            if look.is_reached:
                return PokeReturnValue(is_done=True, xcom_value=look.free_slots)
        if self.deferrable:
            trigger = FlinklikeClusterTrigger(
                self.flinklike_conn_id,
                free_slots=wish.free_slots,
                has_spark=wish.has_spark,
                spark_profile=wish.spark_profile,
                poll_interval=max(1.0, float(self.poke_interval)),
            )
            self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
        return PokeReturnValue(is_done=False)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> int:
        """Go on after the trigger has fired. Returns the number of free slots, or raises the error of the trigger."""
        del context
        if "verdict" not in event:
            raise error_of_event(event)
        return int(event["free_slots"])

    def _wish(self) -> ClusterWish:
        text = str(self.free_slots)
        if not text.isdecimal():
            message = f"task {self.task_id!r}: free_slots is {text!r}, expected a number"
            raise AirflowFailException(message)
        return ClusterWish(int(text), self.spark, self.spark_profile or "")

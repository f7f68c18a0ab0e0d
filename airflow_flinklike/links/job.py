"""The link from a task instance to its job's page on the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

from airflow_flinklike.task_instance.xcoms import JOB_URL_KEY

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class FlinklikeJobLink(BaseOperatorLink):
    """The link shows the task's XCom `job_url`, which the operator stores right after the submit.

    So the link is there while the job runs, and each mapped task has its own.
    """

    name = "Flinklike job"

    @property
    def xcom_key(self) -> str:
        """The XCom from which Airflow's pages take the address."""
        return JOB_URL_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The stored address; "" before the submit."""
        del operator
        value = XCom.get_value(key=self.xcom_key, ti_key=ti_key)
        return str(value) if value else ""

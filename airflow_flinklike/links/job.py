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
    """The operator stores the address right after the submit, so that the link is there while the job runs.

    It is the task's XCom `job_url`: one entry serves the page and whoever pulls it, also of mapped tasks.
    """

    name = "Flinklike job"

    @property
    def xcom_key(self) -> str:
        """Where Airflow's pages look for it."""
        return JOB_URL_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The stored address, "" before the submit."""
        del operator
        value = XCom.get_value(key=self.xcom_key, ti_key=ti_key)
        return str(value) if value else ""

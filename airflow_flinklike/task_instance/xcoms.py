"""What a task puts into XCom: its job's id and page, and the job's value, whose size is bounded."""

from __future__ import annotations

import json
from typing import Any

from airflow_flinklike.exceptions import ResultTooLargeError

JOB_ID_KEY = "job_id"
JOB_URL_KEY = "job_url"
XCOM_LIMIT = 48 * 1024
"""Bytes of JSON. Airflow's database keeps an XCom whole, and its pages show it whole; Airflow once had this limit."""


def push_job(task_instance: Any, job_id: str, url: str) -> None:
    """Store the job's id and the address of its page while the job runs: Airflow stores links at a task's end only."""
    task_instance.xcom_push(key=JOB_URL_KEY, value=url)
    task_instance.xcom_push(key=JOB_ID_KEY, value=job_id)


def check_size(job_id: str, value: Any, limit: int | None) -> None:
    """Raises ResultTooLargeError. `limit` is in bytes of JSON; None for a backend that keeps large values elsewhere."""
    if limit is None:
        return
    size = len(json.dumps(value))
    if size > limit:
        raise ResultTooLargeError(job_id, size, limit)

"""The size of what goes into XCom. Airflow keeps it in its database, shows it whole, and hands it on whole."""

from __future__ import annotations

import json
from typing import Any

from airflow_flinklike.exceptions import ResultTooLargeError

XCOM_LIMIT = 48 * 1024
"""What Airflow itself once allowed, and what its database, API and pages still carry without being felt."""


def check_size(job_id: str, value: Any, limit: int | None) -> None:
    """Raises ResultTooLargeError. `limit` None: there is none, for backends that keep large values elsewhere."""
    if limit is None:
        return
    size = len(json.dumps(value))
    if size > limit:
        raise ResultTooLargeError(job_id, size, limit)

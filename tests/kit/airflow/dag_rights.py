"""An auth manager whose people have rights for some DAGs only, as those of deployments have."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager


class DagRights(SimpleAuthManager):
    """`reads-sales` and `edits-sales` may see the DAGs whose ids begin with `sales`, and the second one changes them.

    `no-logs-sales` reads no logs, and `daily-sales` sees the task instances of DAGs that end with `daily` only. All
    others may nothing with a DAG.
    """

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        """See above."""
        rights, _, prefix = user.username.rpartition("-")
        if not prefix or not details or not str(details.id).startswith(prefix):
            return False
        is_of_logs = access_entity is not None and access_entity.value == "TASK_LOGS"
        if rights == "no-logs" and is_of_logs:
            return False
        if rights == "daily" and access_entity is not None and not str(details.id).endswith("daily"):
            return False
        return bool(method == "GET" or rights == "edits")

"""What a person who has signed in to Airflow may see and do of jobs: what they may of the task instances (R56)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import HTTPException, Request


def check_reads(request: Request, user: Any, dag_id: str) -> None:
    """Raises HTTPException for whom may not read the DAG's task instances."""
    requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE, dag_id)(request, user)


def check_reads_logs(request: Request, user: Any, dag_id: str) -> None:
    """The same for their logs."""
    requires_access_dag("GET", DagAccessEntity.TASK_LOGS, dag_id)(request, user)


def check_edits(request: Request, user: Any, dag_id: str) -> None:
    """The same for who may change their state: mark one failed, for instance, which ends its job too."""
    requires_access_dag("PUT", DagAccessEntity.TASK_INSTANCE, dag_id)(request, user)


def may_edit(request: Request, user: Any, dag_id: str) -> bool:
    """`check_edits` as a value."""
    try:
        check_edits(request, user, dag_id)
    except HTTPException:
        return False
    return True


def readable(request: Request, user: Any) -> set[str]:
    """The DAGs whose task instances the person may read."""
    return set(_of(request, user, get_auth_manager().get_authorized_dag_ids(user=user, method="GET")))


def _of(request: Request, user: Any, dag_ids: Iterable[str]) -> Iterable[str]:
    for dag_id in dag_ids:
        try:
            check_reads(request, user, dag_id)
        except HTTPException:
            continue
        yield dag_id

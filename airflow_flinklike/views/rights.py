"""What a person who has signed in to Airflow may see and do of jobs: what they may of the task instances (R56)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import HTTPException, Request

from airflow_flinklike.views.task_jobs import with_jobs

_BATCH = 100
"""So many DAGs are one question; of those where the answer is no, each is asked about by itself."""


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
    """The DAGs with jobs whose task instances the person may read.

    A look asks the auth manager about many DAGs in one call, and about each only where one of them may not be read.
    Nothing is kept from one look to the next: a right that is taken away is gone at once.
    """
    may_see = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    dag_ids = sorted(with_jobs(may_see))
    found: set[str] = set()
    for start in range(0, len(dag_ids), _BATCH):
        some = dag_ids[start : start + _BATCH]
        found.update(some if _may_read_all(user, some) else _of(request, user, some))
    return found


def _may_read_all(user: Any, dag_ids: Sequence[str]) -> bool:
    from airflow.models.dag import DagModel

    team_of = getattr(DagModel, "get_dag_id_to_team_name_mapping", None)  # Airflow knows teams since 3.2
    if team_of is None:
        details = [DagDetails(id=one) for one in dag_ids]
    else:
        teams = team_of(list(dag_ids))
        details = [DagDetails(id=one, team_name=teams.get(one)) for one in dag_ids]
    asked: list[Any] = [
        {"method": "GET", "access_entity": DagAccessEntity.TASK_INSTANCE, "details": one} for one in details
    ]
    return bool(get_auth_manager().batch_is_authorized_dag(asked, user=user))


def _of(request: Request, user: Any, dag_ids: Iterable[str]) -> Iterable[str]:
    for dag_id in dag_ids:
        try:
            check_reads(request, user, dag_id)
        except HTTPException:
            continue
        yield dag_id

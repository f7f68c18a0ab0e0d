"""Which job is whose: what task instances have stored in Airflow's database, believed where the job's id proves it.

A task may write anything into its store. The id of a job is a digest of the DAG, the run, the task and its life
(`TaskLife.job_id_of`), so that nobody can store the job of another DAG as one of their own (R56).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_flinklike.operators.adoption import TaskLife
from airflow_flinklike.task_instance.stored_job import STORE_KEY, StoredJob, parse_stored
from runtime.common.json_text import parse_json

REFERENCE_LENGTH_MAX = 2500
"""Four texts of at most 250 characters, and what encodes them."""


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A task instance. `map_index` is -1 for a task that is not mapped."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int

    def reference(self) -> str:
        """A part of a path that names it."""
        text = json.dumps([self.dag_id, self.run_id, self.task_id, self.map_index], ensure_ascii=False)
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def of_reference(cls, text: str) -> TaskPlace | None:
        """The inverse of `reference`; None for what is none."""
        try:
            if len(text) > REFERENCE_LENGTH_MAX:
                return None
            decoded = parse_json(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
            dag_id, run_id, task_id, map_index = decoded
        except (ValueError, TypeError):
            return None
        if not all(isinstance(one, str) for one in (dag_id, run_id, task_id)) or type(map_index) is not int:
            return None
        return cls(dag_id, run_id, task_id, map_index)


@dataclass(frozen=True, slots=True)
class TaskJob:
    """The job that a task instance has, or had last."""

    place: TaskPlace
    job: StoredJob


def proved(place: TaskPlace, value: object) -> TaskJob | None:
    """The job in a stored value, if its id says that it is of this task instance."""
    stored = parse_stored(value)
    if stored is None or stored.max_tries is None or not stored.conn_id:
        return None
    life = TaskLife(place.dag_id, place.run_id, place.task_id, place.map_index, stored.run_started, stored.max_tries)
    return TaskJob(place, stored) if life.owns(stored.job_id, stored.number) else None


def find(place: TaskPlace) -> TaskJob | None:
    """The job of a task instance."""
    model, _ = _model()
    found = _rows(
        model.dag_id == place.dag_id,
        model.run_id == place.run_id,
        model.task_id == place.task_id,
        model.map_index == place.map_index,
        limit=1,
    )
    return found[0] if found else None


def latest(dag_ids: Collection[str], limit: int) -> Sequence[TaskJob]:
    """The jobs of these DAGs that were stored last, newest first."""
    model, _ = _model()
    return _rows(model.dag_id.in_(sorted(dag_ids)), limit=limit)


def with_jobs(dag_ids: Collection[str]) -> set[str]:
    """Those of these DAGs of which a task instance has stored something."""
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    model, _ = _model()
    with create_session() as session:
        stored = session.scalars(select(model.dag_id).where(model.key == STORE_KEY).distinct()).all()
    return set(stored).intersection(dag_ids)


def _model() -> tuple[Any, Any]:
    """The table, and its column of times: `task_state_store`, and below Airflow 3.3 that of XComs (`job_store`)."""
    try:
        from airflow.models.task_state_store import TaskStateStoreModel
    except ModuleNotFoundError:
        from airflow.models.xcom import XComModel

        return XComModel, XComModel.timestamp
    return TaskStateStoreModel, TaskStateStoreModel.updated_at


def _rows(*conditions: Any, limit: int) -> list[TaskJob]:
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    model, time = _model()
    columns = (model.dag_id, model.run_id, model.task_id, model.map_index, model.value)
    statement = select(*columns).where(model.key == STORE_KEY, *conditions).order_by(time.desc()).limit(limit)
    with create_session() as session:
        rows = session.execute(statement).all()
    found = (proved(TaskPlace(*names), value) for *names, value in rows)
    return [one for one in found if one is not None]

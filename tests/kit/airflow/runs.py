"""Runs DAGs in this process with `dag.test()`, and reads what they left in the database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def run_dag(file: str, conf: dict[str, Any], *, dag_id: str = "") -> Any:
    """The finished run of a DAG in $AIRFLOW__CORE__DAGS_FOLDER."""
    from airflow.dag_processing.dagbag import DagBag

    folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    bag = DagBag(str(folder / f"{file}.py"), bundle_path=folder, bundle_name="dags-folder")
    assert bag.import_errors == {}
    return bag.dags[dag_id or file].test(run_conf=conf)


def xcom(run: Any, task_id: str, key: str = "return_value", *, map_index: int = -1) -> Any:
    """One XCom of a run."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        query = XComModel.get_many(
            run_id=run.run_id, dag_ids=run.dag_id, task_ids=task_id, key=key, map_indexes=map_index
        )
        found: Any = session.scalars(query).first()
    assert found is not None, (task_id, key)
    return XComModel.deserialize_value(found)

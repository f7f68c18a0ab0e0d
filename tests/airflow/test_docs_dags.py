"""The DAGs of the documentation are DAG files, and run on a real cluster."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.kit.airflow.runs import run_dag
from tests.kit.docs import Snippet, SnippetKind, doc_snippets

SNIPPETS = doc_snippets(SnippetKind.DAG)
SCRIPT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
assert spark.range(len(sys.argv[1])).count() == len("2024-05-06"), sys.argv
"""


def dag_of(text: str, directory: Path) -> Any:
    from airflow.dag_processing.dagbag import DagBag

    file = directory / "documented_dag.py"
    file.write_text(text)
    bag = DagBag(str(file), bundle_path=directory, bundle_name="docs")
    assert bag.import_errors == {}
    (dag,) = bag.dags.values()
    return dag


@pytest.mark.parametrize("snippet", SNIPPETS, ids=str)
def test_a_dag_of_the_docs_is_imported(snippet: Snippet, tmp_path: Path) -> None:
    assert dag_of(snippet.text, tmp_path).tasks


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("airflow_database")
@pytest.mark.parametrize("snippet", SNIPPETS, ids=str)
def test_a_dag_of_the_docs_runs(snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script of the DAG is replaced by one of these tests."""
    (tmp_path / "etl.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    text = snippet.text.replace("/opt/jobs/", f"{tmp_path}/")
    dag_id = dag_of(text, tmp_path).dag_id
    file = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]) / f"documented_{dag_id}.py"
    file.write_text(text)
    try:
        run = run_dag(file.stem, {}, dag_id=dag_id)
    finally:
        file.unlink()
    assert str(run.state) == "success"

"""The DAGs of the documentation are DAG files."""

from pathlib import Path

import pytest

from tests.kit.docs import Snippet, SnippetKind, doc_snippets


@pytest.mark.parametrize("snippet", doc_snippets(SnippetKind.DAG), ids=str)
def test_a_dag_of_the_docs_is_imported(snippet: Snippet, tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    file = tmp_path / "documented_dag.py"
    file.write_text(snippet.text)
    bag = DagBag(str(file), bundle_path=tmp_path, bundle_name="docs")
    assert bag.import_errors == {}
    (dag,) = bag.dags.values()
    assert dag.tasks

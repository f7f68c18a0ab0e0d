"""Scripts of tasks are found by the paths that DAG files make, and what they set themselves counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_flinklike.migrate.analysis import analyse
from airflow_flinklike.migrate.model import Judgement
from runtime.common.spark_environments import environment_key

_HEAD = """
import os
from pathlib import Path
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
HERE = Path(__file__).parent
JOBS = str(HERE / "jobs")
"""
_SCRIPT = "from pyspark.sql import SparkSession\nSparkSession.builder.config('spark.serializer', 'K').getOrCreate()\n"


def judged(folder: Path, application: str) -> Judgement:
    """What becomes of a task of a DAG file beside `jobs/etl.py`."""
    (folder / "jobs").mkdir()
    (folder / "jobs" / "etl.py").write_text(_SCRIPT)
    file = folder / "dag.py"
    file.write_text(
        f"{_HEAD}ROOT = Path({str(folder)!r})\nSparkSubmitOperator(task_id='a', application={application})\n"
    )
    report = analyse(file)
    assert not report.problem
    (judgement,) = report.judgements.values()
    return judgement


@pytest.mark.parametrize(
    "application",
    [
        "f'{HERE}/jobs/etl.py'",
        "f'{JOBS}/etl.py'",
        "JOBS + '/etl.py'",
        "str(HERE / 'jobs' / 'etl.py')",
        "os.fspath(HERE.joinpath('jobs', 'etl.py'))",
        "os.path.join(os.path.dirname(__file__), 'jobs', 'etl.py')",
        "os.path.join(os.path.dirname(os.path.abspath(__file__)), 'jobs/etl.py')",
        "os.path.dirname(os.path.realpath(__file__)) + '/jobs/etl.py'",
        "(Path(__file__).resolve().parent / 'jobs/etl.py').as_posix()",
        "str(Path(__file__).absolute().parents[0] / 'jobs/etl.py')",
        "str(ROOT / 'jobs' / 'etl.py')",
        "'jobs/etl.py'",
    ],
)
def test_a_script_is_read_where_its_path_leads_to(application: str, tmp_path: Path) -> None:
    found = judged(tmp_path, application)
    assert found.environments == (environment_key({"spark.serializer": "K"}),)
    assert not any("depends on its script" in note for note in found.notes)


@pytest.mark.parametrize(
    ("application", "told"),
    [
        ("'/nowhere/etl.py'", "depends on its script, which was not found: /nowhere/etl.py; "),
        ("'s3a://bucket/etl.py'", "depends on its script, which was not found: s3a://bucket/etl.py; "),
        ("'{{ var.value.home }}/etl.py'", "depends on its script, whose path is known when it runs ({{ var.value."),
        ("HOME / 'etl.py'", "depends on its script, whose path is known when it runs (HOME / 'etl.py'): "),
        (f"{'f(' * 40}x{')' * 40}", "depends on its script, whose path is known when it runs (f(f("),
    ],
)
def test_a_task_says_that_its_script_was_not_read(application: str, told: str, tmp_path: Path) -> None:
    assert any(note.startswith(told) for note in judged(tmp_path, application).notes)


def test_the_place_of_the_file_is_written_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_text(
        "from pathlib import Path\nfrom airflow.providers.apache.spark.operators.spark_sql import SparkSqlOperator\n"
        "SparkSqlOperator(task_id='a', sql='select 1', conf=f'spark.a={Path(__file__).parent}')\n"
    )
    report = analyse(file)
    report.settle()
    assert str(tmp_path) not in (report.changed_text or "")

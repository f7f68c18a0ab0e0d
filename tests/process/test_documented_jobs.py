"""The programs and commands of the documentation, run for real."""

import json
from pathlib import Path

import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.states import JobStatus
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.docs import Snippet, SnippetKind, doc_commands, doc_snippets, run_snippet

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.slow]

RUNNABLE = [snippet for snippet in doc_snippets(SnippetKind.PROGRAM) if snippet.is_self_contained]


@pytest.mark.parametrize("snippet", RUNNABLE, ids=str)
def test_a_documented_program_finishes(snippet: Snippet, spark_client: FlinklikeClient, tmp_path: Path) -> None:
    for job in run_snippet(snippet, tmp_path):
        job_id = new_job_id()
        spark_client.submit(job.graph, job_id=job_id, contents=job.uploads)
        ended = spark_client.wait_for_result(job_id)
        assert ended.status is JobStatus.FINISHED, ended.failure


@pytest.mark.parametrize("snippet", doc_snippets(SnippetKind.CLIENT), ids=str)
def test_a_documented_submit_gets_its_result(
    snippet: Snippet,
    spark_cluster: ScriptCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FLINKLIKE_ADDRESS", spark_cluster.url)
    monkeypatch.setenv("FLINKLIKE_TOKEN", spark_cluster.token)
    run_snippet(snippet, tmp_path)
    assert capsys.readouterr().out.splitlines()[-1] == "1000"


def test_a_documented_pipeline_runs_from_the_command_line(spark_cluster: ScriptCluster, tmp_path: Path) -> None:
    (readme,) = [snippet for snippet in RUNNABLE if snippet.page.name == "README.md"]
    (tmp_path / "my_module.py").write_text(readme.text)
    done = spark_cluster.cli("run", "my_module:pipeline", timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {str(customer): 100 for customer in (0, 2, 4, 6, 8)}


ETL = """
import sys
import lib
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
assert spark.conf.get("spark.sql.shuffle.partitions") == "8"
assert spark.range(lib.ROWS).count() == 3
assert sys.argv[1:] == ["2026-11-01"], sys.argv
"""


def test_a_documented_script_runs_from_the_command_line(spark_cluster: ScriptCluster, tmp_path: Path) -> None:
    of_page = [one for one in doc_commands() if one.snippet.page.name == "script-jobs.md"]
    (command,) = [one for one in of_page if "etl.py" in one.words]
    (tmp_path / "lib.py").write_text("ROWS = 3")
    (tmp_path / "etl.py").write_text(ETL)
    done = spark_cluster.cli(*command.words[1:], timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr

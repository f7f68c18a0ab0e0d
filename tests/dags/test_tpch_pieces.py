"""What the example DAG is made of, without Airflow and without a cluster: tables, pipeline, script."""

import subprocess
import sys
from pathlib import Path

import pytest

from runtime.common.exchange import ExchangeMode
from tests.kit.spark.plain_spark import plain_spark_environment
from tests.kit.spark.spark_box import ONE_COMPILER
from tests.kit.spark.tpch import PRIORITIES, assert_same, expected, written_csv

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DAGS = Path(__file__).resolve().parents[2] / "dags"


def test_the_pipeline_shows_all_that_a_pipeline_can_have(tables: Path) -> None:
    from tpch.revenue import revenue_pipeline

    graph = revenue_pipeline(str(tables), "out").job_graph()
    modes = {edge.mode for edge in graph.edges}
    assert len(graph.vertices) >= 5
    assert any(len(vertex.operators) > 1 for vertex in graph.vertices)
    assert {ExchangeMode.HASH, ExchangeMode.BROADCAST, ExchangeMode.GATHER, ExchangeMode.FORWARD} <= modes
    assert sum(vertex.is_auto for vertex in graph.vertices) >= 5, "of these the cluster chooses the parallelism"


@pytest.mark.spark
def test_the_script_runs_under_plain_python(tables: Path, tmp_path: Path) -> None:
    script = DAGS / "tpch" / "order_priorities.py"
    output = tmp_path / "priorities"
    done = subprocess.run(
        [sys.executable, str(script), "--data", str(tables), "--output", str(output)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**plain_spark_environment(), "JDK_JAVA_OPTIONS": ONE_COMPILER},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert_same(written_csv(output), expected(tables, PRIORITIES))


def test_tables_are_made_once(tables: Path) -> None:
    from tpch.tables import make_tables, table_files

    stamp = (tables / "nation.parquet").stat().st_mtime_ns
    assert make_tables(tables.parent, 0.01) == tables
    assert (tables / "nation.parquet").stat().st_mtime_ns == stamp
    assert len(table_files(tables, "lineitem")) == 4
    assert table_files(tables, "nation") == [f"{tables}/nation.parquet"]


def test_a_generator_that_fails_says_why(tmp_path: Path) -> None:
    from tpch.tables import make_tables

    with pytest.raises(RuntimeError, match=r"tpchgen-cli parquet -s -1 .* failed with exit code \d+: .*-1"):
        make_tables(tmp_path, -1)
    assert not list(tmp_path.iterdir())


def test_plain_spark_finds_a_java_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert (Path(plain_spark_environment()["JAVA_HOME"]) / "bin" / "java").is_file()

"""The example pipeline's answers against DuckDB on the same files, row by row."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runtime.common.exchange import ExchangeMode
from tests.kit.local_pipeline import run_graph
from tests.kit.plain_spark import plain_spark_environment
from tests.kit.tpch import PRIORITIES, QUERIES, assert_same, expected, written, written_csv

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

DAGS = Path(__file__).resolve().parents[2] / "dags"


@pytest.fixture(scope="module")
def answers(spark: "SparkSession", tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tpch.revenue import revenue_pipeline

    output = tmp_path_factory.mktemp("answers")
    graph = revenue_pipeline(str(tables), str(output)).job_graph()
    return output, run_graph(spark, graph)["report"][0]


@pytest.mark.parametrize("name", QUERIES)
def test_the_pipeline_gives_duckdbs_answer(answers: Any, tables: Path, name: str) -> None:
    output, values = answers
    wanted = expected(tables, QUERIES[name])
    assert wanted
    assert_same(written(output / name), wanted)
    assert len(values[name]) == len(wanted)


def test_the_pipeline_shows_all_that_a_pipeline_can_have(tables: Path) -> None:
    from tpch.revenue import revenue_pipeline

    graph = revenue_pipeline(str(tables), "out").job_graph()
    modes = {edge.mode for edge in graph.edges}
    assert len(graph.vertices) >= 5
    assert any(len(vertex.operators) > 1 for vertex in graph.vertices)
    assert {ExchangeMode.HASH, ExchangeMode.BROADCAST, ExchangeMode.GATHER, ExchangeMode.FORWARD} <= modes
    assert sum(vertex.parallelism > 1 for vertex in graph.vertices) >= 5


def test_the_script_runs_under_plain_python(tables: Path, tmp_path: Path) -> None:
    script = DAGS / "tpch" / "order_priorities.py"
    output = tmp_path / "priorities"
    done = subprocess.run(
        [sys.executable, str(script), "--data", str(tables), "--output", str(output)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=plain_spark_environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert_same(written_csv(output), expected(tables, PRIORITIES))


def test_the_report_has_text_table_and_chart(answers: Any, tmp_path: Path) -> None:
    from tpch.report import write_report

    customers = [{"c_name": "Customer#1", "c_acctbal": 9999.5}]
    text = write_report(tmp_path / "report", answers[1], customers, 0.01)
    assert "Q5  revenue of local suppliers" in text
    assert (tmp_path / "report" / "report.txt").read_text() == text + "\n"
    assert len((tmp_path / "report" / "revenue.csv").read_text().splitlines()) == len(answers[1]["q5"]) + 1
    assert (tmp_path / "report" / "revenue.png").read_bytes().startswith(b"\x89PNG")


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

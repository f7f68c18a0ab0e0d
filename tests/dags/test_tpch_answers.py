"""The example pipeline's answers against DuckDB on the same files, row by row."""

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from runtime.common.exchange import ExchangeMode
from tests.kit.local_pipeline import run_graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

DAGS = Path(__file__).resolve().parents[2] / "dags"

QUERIES = {
    "q1": """
        select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
               sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
               avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
        from lineitem where l_shipdate <= date '1998-12-01' - interval 90 day
        group by all order by l_returnflag, l_linestatus""",
    "q3": """
        select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
        from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
          and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate limit 10""",
    "q5": """
        select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
        from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
          and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
          and r_name = 'ASIA' and o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'
        group by n_name order by revenue desc""",
    "q6": """
        select sum(l_extendedprice * l_discount) from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
          and l_discount between 0.05 and 0.07 and l_quantity < 24""",
}


def expected(tables: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        for name in ("lineitem", "orders"):
            connection.execute(f"create view {name} as select * from '{tables}/{name}/*.parquet'")
        for name in ("customer", "supplier", "nation", "region"):
            connection.execute(f"create view {name} as select * from '{tables}/{name}.parquet'")
        return connection.execute(query).fetchall()


def written(directory: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(f"select * from '{directory}/*.parquet'").fetchall()


def assert_same(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> None:
    """Row by row: decimals exactly, averages to the last digits of a double."""
    assert len(found) == len(wanted)
    for found_row, wanted_row in zip(found, wanted, strict=True):
        for one, other in zip(found_row, wanted_row, strict=True):
            if isinstance(other, float):
                assert one == pytest.approx(other, rel=1e-12)
            elif isinstance(other, Decimal):
                assert Decimal(one) == other
            else:
                assert one == other


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
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    query = """
        select lower(split_part(o_orderpriority, '-', 2)) as priority, count(*) from orders
        where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-10-01' and exists
          (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
        group by o_orderpriority order by priority"""
    with duckdb.connect() as connection:
        found = connection.execute(f"select priority, order_count from read_csv('{output}/*.csv')").fetchall()
    assert found == expected(tables, query)


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

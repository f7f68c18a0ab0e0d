"""TPC-H answers by DuckDB, and how they are compared with those of a job: row by row."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

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
"""The queries of the pipeline, as the benchmark words them."""

PRIORITIES = """
    select lower(split_part(o_orderpriority, '-', 2)) as priority, count(*) from orders
    where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-10-01' and exists
      (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
    group by o_orderpriority order by priority"""
"""The query of the script job."""

CUSTOMERS = "select c_name, c_acctbal::double from customer order by c_acctbal desc, c_custkey desc limit 5"
"""The query of the decorated function."""


def expected(tables: Path, query: str) -> list[tuple[Any, ...]]:
    """DuckDB's answer on the tables in that directory."""
    with duckdb.connect() as connection:
        for name in ("lineitem", "orders"):
            connection.execute(f"create view {name} as select * from '{tables}/{name}/*.parquet'")
        for name in ("customer", "supplier", "nation", "region"):
            connection.execute(f"create view {name} as select * from '{tables}/{name}.parquet'")
        return connection.execute(query).fetchall()


def written(directory: Path) -> list[tuple[Any, ...]]:
    """The rows of parquet files that a job wrote, in their order."""
    with duckdb.connect() as connection:
        return connection.execute(f"select * from '{directory}/*.parquet'").fetchall()


def written_csv(directory: Path) -> list[tuple[Any, ...]]:
    """The rows of CSV files that a job wrote, in their order."""
    with duckdb.connect() as connection:
        return connection.execute(f"select * from read_csv('{directory}/*.csv')").fetchall()


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

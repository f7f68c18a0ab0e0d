"""TPC-H Q1, Q3, Q5 and Q6 in one pipeline.

    pricing lines  -> pricing sums  ==gather=====================================\\
    forecast lines -> forecast sum  ==gather====================================  \\
    customers ==hash==\\                                                         \\  report
    orders    ==hash===> customer orders ==hash==\\                              /
    lines -> line revenue ===============hash=====> order lines -> top orders ==/
                                        suppliers ==broadcast==> local revenue =/

Functions see plain DataFrames and speak SQL, so building the pipeline needs no Spark where it is built.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_flinklike import Pipeline, files_in
from tpch.tables import table_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_flinklike import TaskContext


def revenue_pipeline(data: str, output: str, parallelism: int | None = None) -> Pipeline:
    """The job. `data` holds the tables; the answers are written below `output` and returned.

    The cluster chooses how many subtasks each step has, unless `parallelism` says so for all of them.
    """
    pipeline = Pipeline("tpch-revenue", parallelism=parallelism, params={"data": data, "output": output})

    def splits(table: str) -> Any:
        files = table_files(data, table)
        return files_in(str(Path(data, table)) if len(files) > 1 else files[0]) if parallelism is None else files

    whole = None if parallelism is None else 1  # tables of one file
    lineitem = splits("lineitem")
    pricing = pipeline.source("pricing lines", read_files, splits=lineitem).map("pricing sums", pricing_sums)
    forecast = pipeline.source("forecast lines", read_files, splits=lineitem).map("forecast sum", forecast_sum)

    customers = pipeline.source("customers", read_files, splits=splits("customer"), parallelism=whole)
    ordered = pipeline.source("orders", read_files, splits=splits("orders"))
    customer_orders = ordered.hash("o_custkey").apply("customer orders", join_customers, customers.hash("c_custkey"))
    lines = pipeline.source("lines", read_files, splits=lineitem).map("line revenue", line_revenue)
    order_lines = lines.hash("l_orderkey").apply("order lines", join_orders, customer_orders.hash("o_orderkey"))

    top_orders = order_lines.map("top orders", shipping_priority)
    suppliers = pipeline.source("suppliers", asian_suppliers, parallelism=1)
    local = order_lines.apply("local revenue", local_revenue, suppliers.broadcast())

    pricing.gather().sink("report", report, top_orders.gather(), local.gather(), forecast.gather())
    return pipeline


def read_files(ctx: TaskContext) -> DataFrame:
    """This subtask's share of a table's files: each split is a file, or a list of them."""
    files = [split if isinstance(split, list) else [split] for split in ctx.splits]
    return ctx.spark.read.parquet(*(one for several in files for one in several))


def pricing_sums(ctx: TaskContext, lines: DataFrame) -> DataFrame:
    """Q1, per subtask: sums that can be added up."""
    return ctx.spark.sql(
        """
        select l_returnflag, l_linestatus,
               sum(l_quantity) as sum_qty,
               sum(l_extendedprice) as sum_base_price,
               sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge,
               sum(l_discount) as sum_discount,
               count(*) as count_order
        from {lines} where l_shipdate <= date '1998-12-01' - interval 90 days
        group by l_returnflag, l_linestatus
        """,
        lines=lines,
    )


def forecast_sum(ctx: TaskContext, lines: DataFrame) -> DataFrame:
    """Q6, per subtask."""
    return ctx.spark.sql(
        """
        select sum(l_extendedprice * l_discount) as revenue from {lines}
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
          and l_discount between 0.05 and 0.07 and l_quantity < 24
        """,
        lines=lines,
    )


def join_customers(ctx: TaskContext, orders: DataFrame, customers: DataFrame) -> DataFrame:
    """The orders that Q3 or Q5 may need, with their customers."""
    return ctx.spark.sql(
        """
        select o_orderkey, o_orderdate, o_shippriority, c_mktsegment, c_nationkey
        from {orders} join {customers} on o_custkey = c_custkey
        where (c_mktsegment = 'BUILDING' and o_orderdate < date '1995-03-15')
           or (o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01')
        """,
        orders=orders,
        customers=customers,
    )


def line_revenue(ctx: TaskContext, lines: DataFrame) -> DataFrame:
    """Only what the joins need."""
    return ctx.spark.sql(
        "select l_orderkey, l_suppkey, l_shipdate, l_extendedprice * (1 - l_discount) as revenue from {lines}",
        lines=lines,
    )


def join_orders(ctx: TaskContext, lines: DataFrame, orders: DataFrame) -> DataFrame:
    """Lines with their orders: all lines of an order are in one subtask."""
    return ctx.spark.sql(
        "select l.*, o.* from {lines} l join {orders} o on l_orderkey = o_orderkey", lines=lines, orders=orders
    )


def shipping_priority(ctx: TaskContext, order_lines: DataFrame) -> DataFrame:
    """Q3: the ten best orders of this subtask, among which are its share of the ten best of all."""
    return ctx.spark.sql(
        """
        select l_orderkey, sum(revenue) as revenue, o_orderdate, o_shippriority from {order_lines}
        where c_mktsegment = 'BUILDING' and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority
        order by revenue desc, o_orderdate limit 10
        """,
        order_lines=order_lines,
    )


def asian_suppliers(ctx: TaskContext) -> DataFrame:
    """Suppliers of the region ASIA with their nations: small, so every subtask gets all of them."""
    data = ctx.params["data"]
    return ctx.spark.sql(
        """
        select s_suppkey, s_nationkey, n_name
        from {suppliers} join {nations} on s_nationkey = n_nationkey join {regions} on n_regionkey = r_regionkey
        where r_name = 'ASIA'
        """,
        suppliers=ctx.spark.read.parquet(f"{data}/supplier.parquet"),
        nations=ctx.spark.read.parquet(f"{data}/nation.parquet"),
        regions=ctx.spark.read.parquet(f"{data}/region.parquet"),
    )


def local_revenue(ctx: TaskContext, order_lines: DataFrame, suppliers: DataFrame) -> DataFrame:
    """Q5, per subtask: revenue where customer and supplier are of the same nation."""
    return ctx.spark.sql(
        """
        select n_name, sum(revenue) as revenue
        from {order_lines} join {suppliers} on l_suppkey = s_suppkey and c_nationkey = s_nationkey
        where o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'
        group by n_name
        """,
        order_lines=order_lines,
        suppliers=suppliers,
    )


def report(
    ctx: TaskContext, pricing: DataFrame, top_orders: DataFrame, local: DataFrame, forecast: DataFrame
) -> dict[str, list[dict[str, Any]]]:
    """Finish the four answers, write each as parquet, and return them."""
    answers = {
        "q1": ctx.spark.sql(
            """
            select l_returnflag, l_linestatus, sum(sum_qty) as sum_qty, sum(sum_base_price) as sum_base_price,
                   sum(sum_disc_price) as sum_disc_price, sum(sum_charge) as sum_charge,
                   double(sum(sum_qty)) / sum(count_order) as avg_qty,
                   double(sum(sum_base_price)) / sum(count_order) as avg_price,
                   double(sum(sum_discount)) / sum(count_order) as avg_disc,
                   sum(count_order) as count_order
            from {pricing} group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus
            """,
            pricing=pricing,
        ),
        "q3": top_orders.orderBy("revenue", "o_orderdate", ascending=[False, True]).limit(10),
        "q5": ctx.spark.sql(
            "select n_name, sum(revenue) as revenue from {local} group by n_name order by revenue desc", local=local
        ),
        "q6": ctx.spark.sql("select sum(revenue) as revenue from {forecast}", forecast=forecast),
    }
    values: dict[str, list[dict[str, Any]]] = {}
    for number, (name, answer) in enumerate(answers.items(), 1):
        directory = ctx.output_path(f"{ctx.params['output']}/{name}")
        answer.coalesce(1).write.mode("overwrite").parquet(directory)
        values[name] = [
            {column: plain(value) for column, value in row.asDict().items()}
            for row in ctx.spark.read.parquet(directory).collect()
        ]
        ctx.report_progress(number / len(answers), f"{name} written")
    return values


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date) else value

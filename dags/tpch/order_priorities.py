"""A plain spark-submit application (TPC-H Q4): it knows nothing of the cluster and runs on it unchanged.

order_priorities.py --data DIRECTORY --output DIRECTORY
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType


def label(priority: str) -> str:
    """`1-URGENT` -> `urgent`: a UDF that lives in `__main__`."""
    return priority.partition("-")[2].lower()


def main() -> int:
    """Read, count, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()

    spark = SparkSession.builder.appName("order priorities").getOrCreate()
    spark.read.parquet(f"{options.data}/orders").createOrReplaceTempView("orders")
    spark.read.parquet(f"{options.data}/lineitem").createOrReplaceTempView("lineitem")
    late = spark.sql(
        """
        select o_orderpriority, count(*) as order_count from orders
        where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-10-01'
          and exists (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
        group by o_orderpriority
        """
    )
    named = udf(label, StringType())
    counted = late.select(named("o_orderpriority").alias("priority"), "order_count").orderBy("priority")
    counted.coalesce(1).write.mode("overwrite").csv(options.output, header=True)
    counted.show()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

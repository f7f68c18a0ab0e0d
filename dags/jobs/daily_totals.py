"""A plain spark-submit application, unchanged by its move to this cluster.

daily_totals.py --day DAY --orders NUMBER
"""

from __future__ import annotations

import argparse
import os
import sys

from prices import price_in_cents  # type: ignore[import-not-found]  # comes along as a py-file
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType


def main() -> int:
    """Make the orders of a day, add them up by shop, show the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--day", required=True)
    parser.add_argument("--orders", type=int, default=1000)
    options = parser.parse_args()

    spark = SparkSession.builder.appName("daily totals").getOrCreate()
    priced = udf(price_in_cents, LongType())
    orders = spark.range(options.orders).selectExpr("id", "id % 5 as shop")
    totals = orders.withColumn("cents", priced("id")).groupBy("shop").sum("cents").orderBy("shop")
    totals.show()
    rows = totals.collect()
    print(f"{options.day}: {len(rows)} shops, {sum(row[1] for row in rows)} cents, {os.environ['CURRENCY']}")  # noqa: T201
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

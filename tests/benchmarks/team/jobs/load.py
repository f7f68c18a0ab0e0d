"""Write a table, and what it adds up to."""

import argparse
import json
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

parser = argparse.ArgumentParser()
for name in ("--table", "--day", "--out"):
    parser.add_argument(name, required=True)
given = parser.parse_args()

spark = SparkSession.builder.appName(f"load {given.table}").getOrCreate()
seed = sum(map(ord, given.table))
rows = spark.range(2000).select(
    "id",
    ((f.col("id") * seed) % 97).alias("amount"),
    f.lit(given.day).alias("day"),
    f.concat(f.lit(given.table), f.col("id") % 7).alias("label"),
)
rows.write.mode("overwrite").parquet(f"{given.out}/tables/{given.table}")
back = spark.read.parquet(f"{given.out}/tables/{given.table}")
total = back.agg(f.sum("amount").alias("amount"), f.countDistinct("label").alias("labels")).first()
result = {"amount": total["amount"], "labels": total["labels"]}
Path(given.out, f"load_{given.table}.json").write_text(json.dumps(result))
print(given.table, result)

"""Clean the labels of a table by a function of the team."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from rules import cleaned

table, out = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
clean = f.udf(cleaned)
rows = spark.read.parquet(f"{out}/tables/{table}").withColumn("label", clean("label"))
rows.write.mode("overwrite").parquet(f"{out}/clean/{table}")
labels = sorted(row.label for row in rows.select("label").distinct().collect())
Path(out, f"clean_{table}.json").write_text(json.dumps(labels))

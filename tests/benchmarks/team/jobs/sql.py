"""Join tables by SQL, and call a class of a jar."""

import argparse
import json
from pathlib import Path

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
out = parser.parse_args().out
spark = SparkSession.builder.getOrCreate()
for table in ("orders", "customers"):
    spark.read.parquet(f"{out}/tables/{table}").createOrReplaceTempView(table)
spark.sql(
    "create or replace temporary view joined as select o.id, o.amount + c.amount as both from orders o join customers c using (id)"
)
top = spark.sql("select id, both from joined order by both desc, id limit 5").collect()
plus = spark._jvm.team.Rules.plus(40)
Path(out, "sql.json").write_text(json.dumps({"top": [tuple(row) for row in top], "plus": plus}))

"""Set static conf in the code, as scripts do."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.appName("own builder")
    .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
found = {key: spark.sparkContext.getConf().get(key) or spark.conf.get(key) for key in ("spark.serializer",)}
found["partitions"] = spark.conf.get("spark.sql.shuffle.partitions")
found["sum"] = spark.sparkContext.parallelize(range(100), 2).map(lambda n: n * n).sum()
Path(sys.argv[1], "own_builder.json").write_text(json.dumps(found))
spark.stop()

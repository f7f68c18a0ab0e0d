"""Write what Spark and the environment say of some settings: `settings.py NAME OUT KEY...`."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

name, out, *keys = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
found = {key: os.environ.get(key[4:]) if key.startswith("env:") else spark.conf.get(key, None) for key in keys}
found["rows"] = spark.range(500).selectExpr("id % 5 as k").groupBy("k").count().count()
Path(out, f"{name}.json").write_text(json.dumps(found))

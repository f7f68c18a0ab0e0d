"""Join two files that came with the job."""

import json
import sys
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
prices = spark.read.csv("file://" + SparkFiles.get("prices.csv"), header=True, inferSchema=True)
names = spark.read.csv("file://" + SparkFiles.get("names.csv"), header=True)
found = [row.asDict() for row in prices.join(names, "key").orderBy("key").collect()]
Path(sys.argv[1], "lookup.json").write_text(json.dumps(found))

"""Count the words of an archive that came with the job."""

import json
import sys
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
folder = Path(SparkFiles.get("bundle"))
words = spark.createDataFrame([(word,) for word in (folder / "words.txt").read_text().split()], "word string")
Path(sys.argv[1], "bundle.json").write_text(json.dumps(words.distinct().count()))

"""Count what the other tasks have written."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

out = Path(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
files = sorted(path.name for path in out.glob("*.json"))
rows = spark.createDataFrame([(name, len((out / name).read_text())) for name in files], "name string, size int")
found = {"files": rows.count(), "tables": len(list((out / "tables").iterdir()))}
(out / "report.json").write_text(json.dumps(found))

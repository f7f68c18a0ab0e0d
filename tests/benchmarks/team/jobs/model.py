"""Fit a line."""

import json
import sys
from pathlib import Path

from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import LinearRegression
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.range(200).selectExpr("double(id) as x", "3.0 * id + 2.0 as label")
fitted = LinearRegression().fit(VectorAssembler(inputCols=["x"], outputCol="features").transform(rows))
found = {"slope": round(float(fitted.coefficients[0]), 3), "intercept": round(float(fitted.intercept), 2)}
Path(sys.argv[1], "model.json").write_text(json.dumps(found))

"""A relative local path means the job's working directory, as under spark-submit, for two slots at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.spark.spark_box import SlotProcess, SparkBox

READ = """
from pyspark.sql.functions import input_file_name
sc = spark.sparkContext
def first(rows):
    return sorted(row[0] for row in rows)
emit(first(spark.read.text("data/in.txt").collect()))
emit(first(spark.read.format("json").option("path", "data/in.json").load().select("who").collect()))
emit(sorted(sc.textFile("data/in.txt").collect()))
emit([text for _, text in sc.wholeTextFiles("data/*.txt").collect()])
emit([bytes(content).decode() for _, content in sc.binaryFiles("data/*.txt").collect()])
emit(first(spark.sql("select * from text.`data/in.txt`").collect()))
spark.sql("create temporary view seen using text options (path 'data/in.txt')")
emit(first(spark.table("seen").collect()))
emit([spark.read.text("data/in.txt").select(input_file_name()).first()[0]])
ask()
"""

WRITE = """
sc = spark.sparkContext
mine = spark.range(int(WHO)).selectExpr("id", "'%s' as who" % WHO)
mine.write.parquet("out/parquet")
mine.coalesce(1).write.option("path", "out/csv").format("csv").save()
sc.parallelize([WHO], 1).saveAsTextFile("out/text")
sc.parallelize([WHO], 1).saveAsPickleFile("out/pickle")
sc.parallelize([(WHO, 1)], 1).saveAsSequenceFile("out/sequence")
sc.parallelize([(WHO, 1)], 1).saveAsNewAPIHadoopFile(
    "out/hadoop", "org.apache.hadoop.mapreduce.lib.output.TextOutputFormat",
    "org.apache.hadoop.io.Text", "org.apache.hadoop.io.IntWritable")
mine.createOrReplaceTempView("mine")
spark.sql("insert overwrite directory 'out/directory' using parquet select * from mine")
emit([spark.read.parquet("out/parquet").count(), sc.textFile("out/text").first(), sc.pickleFile("out/pickle").first(),
      sc.sequenceFile("out/sequence").first()[0], spark.sql("select * from parquet.`out/directory`").count()])
mine.write.mode("overwrite").parquet("out/parquet")
mine.write.mode("append").parquet("out/parquet")
emit(spark.read.parquet("out/parquet").count())
ask()
"""

CHECKPOINT = """
sc = spark.sparkContext
sc.setCheckpointDir("kept")
numbers = sc.parallelize(range(int(WHO)), 1)
numbers.checkpoint()
emit([numbers.count(), numbers.getCheckpointFile()])
frame = spark.range(int(WHO)).checkpoint()
emit(frame.count())
ask()
"""

STREAM = """
source = spark.readStream.schema("who string").json("data")
query = (source.writeStream.format("parquet").option("checkpointLocation", "checkpoints/one").option("path", "streamed")
    .trigger(availableNow=True).start())
query.awaitTermination()
spark.conf.set("spark.sql.streaming.checkpointLocation", "checkpoints")
second = source.writeStream.queryName("two").trigger(availableNow=True).foreachBatch(
    lambda frame, _: frame.write.mode("append").json("batches")).start()
second.awaitTermination()
emit([spark.read.parquet("streamed").first()[0], spark.read.json("batches").first()[0]])
ask()
"""

LEARN = """
from pyspark.ml.classification import LogisticRegression, LogisticRegressionModel
from pyspark.ml.linalg import Vectors
from pyspark.mllib.clustering import KMeans, KMeansModel
sc = spark.sparkContext
rows = [(float(n % 2), Vectors.dense(float(n))) for n in range(8)]
model = LogisticRegression(maxIter=1).fit(spark.createDataFrame(rows, ["label", "features"]))
model.save("models/new")
means = KMeans.train(sc.parallelize([[0.0], [9.0]]), 2, maxIterations=1)
means.save(sc, "models/old")
emit([LogisticRegressionModel.load("models/new").numFeatures, KMeansModel.load(sc, "models/old").k])
ask()
"""

TABLES = """
spark.range(int(WHO)).write.saveAsTable("stored")
spark.range(int(WHO)).write.option("path", "elsewhere").saveAsTable("placed")
spark.sql("create table located (who string) using parquet location 'rel'")
spark.sql("insert into located values ('%s')" % WHO)
spark.catalog.createTable("created", path="by_catalog", source="parquet", schema=spark.range(1).schema)
def location(table):
    rows = spark.sql("describe extended " + table).collect()
    return next(row[1] for row in rows if row[0] == "Location")
emit([spark.table("stored").count(), spark.table("placed").count(), spark.table("located").first()[0]])
emit([location(table) for table in ("stored", "placed", "located", "created")])
ask()
"""

WORKERS = """
import os
from pyspark.sql.functions import pandas_udf, udf
sc = spark.sparkContext
content = udf(lambda name: open(name).read().strip())
of_pandas = pandas_udf(lambda names: names.map(lambda name: open(name).read().strip()), "string")
emit(sc.parallelize(["data/in.txt"], 1).map(lambda name: [os.getcwd(), open(name).read().strip()]).first())
names = spark.createDataFrame([("data/in.txt",)], ["name"])
emit([names.select(content("name")).first()[0], names.select(of_pandas("name")).first()[0]])
ask()
"""

ADDED = """
import importlib
from pyspark import SparkFiles
sc = spark.sparkContext
sc.addFile("data/in.txt")
sc.addPyFile("data/of_job.py")
emit([open(SparkFiles.get("in.txt")).read().strip(), importlib.import_module("of_job").WHO,
      sc.parallelize([1], 1).map(lambda _: importlib.import_module("of_job").WHO).first()])
ask()
"""


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """The working directories of two jobs: the same names, other contents."""
    found = {who: tmp_path / f"job {who}" for who in ("3", "5")}
    for who, place in found.items():
        (place / "data").mkdir(parents=True)
        (place / "data" / "in.txt").write_text(f"{who}\n")
        (place / "data" / "in.json").write_text(json.dumps({"who": who}))
        (place / "data" / "of_job.py").write_text(f"WHO = {who!r}\n")
    return found


def both(box: SparkBox, places: dict[str, Path], code: str) -> dict[str, SlotProcess]:
    """The same code in two slots at once."""
    return {
        who: box.slot(
            f"WHO = {who!r}\n{code}",
            slot_index=index,
            directory=place,
            job_id=who * 32,
        )
        for index, (who, place) in enumerate(places.items())
    }


def end(box: SparkBox, slots: dict[str, SlotProcess]) -> None:
    for who, slot in slots.items():
        box.end(slot)
        box.end_job(who * 32)


def emitted(slot: SlotProcess, count: int) -> list[Any]:
    return [slot.next() for _ in range(count)]


def test_readers_read_the_jobs_files(box: SparkBox, places: dict[str, Path]) -> None:
    slots = both(box, places, READ)
    for who, slot in slots.items():
        *read, name = emitted(slot, 8)
        assert read == [[who], [who], [who], [f"{who}\n"], [f"{who}\n"], [who], [who]]
        assert name == [(places[who] / "data" / "in.txt").as_uri()]
    end(box, slots)


def test_writers_write_into_the_jobs_directory(box: SparkBox, places: dict[str, Path]) -> None:
    slots = both(box, places, WRITE)
    for who, slot in slots.items():
        assert emitted(slot, 2) == [[int(who), who, who, who, int(who)], 2 * int(who)]
    for place in places.values():
        names = {path.name for path in (place / "out").iterdir()}
        assert names == {"parquet", "csv", "text", "pickle", "sequence", "hadoop", "directory"}
    end(box, slots)


def test_checkpoints_lie_in_the_jobs_directory(box: SparkBox, places: dict[str, Path]) -> None:
    slots = both(box, places, CHECKPOINT)
    for who, slot in slots.items():
        (count, file), rows = emitted(slot, 2)
        assert (count, rows) == (int(who), int(who))
        assert file.startswith(f"file:{places[who]}/kept/")
    end(box, slots)


def test_streams_read_write_and_keep_their_state_in_the_jobs_directory(box: SparkBox, places: dict[str, Path]) -> None:
    slots = both(box, places, STREAM)
    for who, slot in slots.items():
        assert slot.next() == [who, who]
        assert (places[who] / "checkpoints" / "one" / "metadata").is_file()
        assert list((places[who] / "checkpoints").glob("two*/metadata"))
    end(box, slots)


def test_models_are_saved_and_loaded_in_the_jobs_directory(box: SparkBox, places: dict[str, Path]) -> None:
    slots = both(box, places, LEARN)
    for who, slot in slots.items():
        assert slot.next() == [1, 2]
        assert {path.name for path in (places[who] / "models").iterdir()} == {"new", "old"}
    end(box, slots)


def test_tables_lie_where_spark_submit_puts_them(box: SparkBox, places: dict[str, Path]) -> None:
    """As measured with plain Spark: relative to the warehouse, `spark-warehouse` in the working directory."""
    slots = both(box, places, TABLES)
    for who, slot in slots.items():
        rows, locations = emitted(slot, 2)
        assert rows == [int(who), int(who), who]
        warehouse = f"file:{places[who].as_posix()}/spark-warehouse".replace(" ", "%20")
        expected = [f"{warehouse}/{name}" for name in ("stored", "elsewhere", "rel", "by_catalog")]
        assert [location.replace("file:///", "file:/").replace(" ", "%20") for location in locations] == expected
    end(box, slots)


def test_python_workers_work_in_the_jobs_directory(box: SparkBox, places: dict[str, Path]) -> None:
    slots = both(box, places, WORKERS)
    for who, slot in slots.items():
        assert emitted(slot, 2) == [[str(places[who]), who], [who, who]]
    end(box, slots)


def test_added_files_are_found_from_the_jobs_directory(box: SparkBox, places: dict[str, Path]) -> None:
    slots = both(box, places, ADDED)
    for who, slot in slots.items():
        assert slot.next() == [who, who, who]
    end(box, slots)

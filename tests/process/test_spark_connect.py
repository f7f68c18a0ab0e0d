"""TaskManagers whose slots are clients of a real Spark Connect server (D-139)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_flinklike.client import FlinklikeClient
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.spark.connect_server import MISSING, ConnectServer, connect_server
from tests.process.test_spark_pipelines import every_edge, submit

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.skipif(bool(MISSING), reason=f"pip install -r requirements/connect.txt: {', '.join(MISSING)}"),
]

COUNTS = "from pyspark.sql import SparkSession\nprint(SparkSession.active().range(5).repartition(2).count())"
TOKEN = "dG9rZW4+b2Y/dGhl;c2V=/%20=="  # as random ones look like, and with all that means something in an address


@pytest.fixture(scope="module")
def server() -> Iterator[ConnectServer]:
    with connect_server({"spark.connect.authenticate.token": TOKEN}) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptCluster]:
    token = tmp_path_factory.mktemp("connect") / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    options = {
        "spark.master": server.master.replace("127.0.0.1", "localhost"),
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "taskmanager.spark.secret-file": str(token),
        "taskmanager.numberOfTaskSlots": "2",
    }
    with ScriptCluster(options, job_masters=1) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as client:
        yield client


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(text)
    return str(path)


def counted(cluster: ScriptCluster, tmp_path: Path) -> str:
    done = cluster.cli("run", script(tmp_path, COUNTS))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_pipeline_with_every_edge(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    found = submit(client, every_edge()).result()
    assert sum(total for _, total in found["totals"]) == sum(2 * one for one in range(1900))
    assert found["hashed to"] == 2
    assert not [line for line in cluster.processes().values() if "SparkSubmit" in line], "no JVM in TaskManagers"


def test_a_script_as_it_is(cluster: ScriptCluster, tmp_path: Path) -> None:
    text = """
import json
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.appName("own").config("spark.sql.shuffle.partitions", "3").getOrCreate()
double = F.udf(lambda n: 2 * n, "long")
print(json.dumps({
    "module": type(spark).__module__.rpartition(".")[0],
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "ansi": spark.conf.get("spark.sql.ansi.enabled"),
    "sum": spark.range(10).select(double("id").alias("n")).agg(F.sum("n")).first()[0],
    "active": SparkSession.active() is spark and SparkSession.builder.getOrCreate() is spark,
    "views": [one.name for one in spark.catalog.listTables()],
}))
spark.range(3).createOrReplaceTempView("of_this_job")
"""
    for _ in range(2):  # the second one does not see the view of the first
        done = cluster.cli("run", "--conf", "spark.sql.ansi.enabled=false", script(tmp_path, text))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {
            "module": "pyspark.sql.connect",
            "partitions": "3",
            "zone": "Asia/Tokyo",
            "ansi": "false",
            "sum": 90,
            "active": True,
            "views": [],
        }


def test_a_session_that_is_stopped_goes_on_as_it_does_with_a_jvm(cluster: ScriptCluster, tmp_path: Path) -> None:
    text = """
from pyspark.sql import SparkSession
with SparkSession.builder.getOrCreate() as spark:
    spark.range(3).createOrReplaceTempView("three")
other = spark.newSession()
other.stop()
spark.stop()
print(other.is_stopped, SparkSession.builder.getOrCreate() is spark, spark.table("three").count())
"""
    done = cluster.cli("run", script(tmp_path, text))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True True 3"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("from pyspark import SparkContext; SparkContext()", "a SparkContext, and RDDs: not with Spark Connect"),
        ("from pyspark import SparkContext; SparkContext.getOrCreate()", "a SparkContext, and RDDs: not with"),
        ("spark.sparkContext", "JVM_ATTRIBUTE_NOT_SUPPORTED"),
        ("spark.range(1).rdd", "JVM_ATTRIBUTE_NOT_SUPPORTED|rdd"),
        ("spark._jvm", "JVM_ATTRIBUTE_NOT_SUPPORTED"),
    ],
)
def test_what_needs_a_jvm_is_refused_when_it_is_used(
    cluster: ScriptCluster, tmp_path: Path, code: str, said: str
) -> None:
    begin = "from pyspark.sql import SparkSession; spark = SparkSession.builder.getOrCreate()"
    done = cluster.cli("run", script(tmp_path, f"{begin}\n{code}\n"))
    assert done.returncode != 0
    assert re.search(said, done.stderr), done.stderr


def test_what_needs_a_jvm_is_refused_at_submit(cluster: ScriptCluster, tmp_path: Path) -> None:
    done = cluster.cli("run", "--conf", "spark.serializer=x", script(tmp_path, "pass"))
    assert done.returncode != 0
    assert "spark.serializer: static, and not with Spark Connect" in done.stderr
    done = cluster.cli("run", "--conf", "spark.jars=/x.jar", script(tmp_path, "pass"))
    assert "start the Spark Connect server with it instead" in done.stderr


def test_a_cancel_ends_the_operations_at_the_server(
    cluster: ScriptCluster, client: FlinklikeClient, server: ConnectServer, tmp_path: Path
) -> None:
    """They would go on for five minutes: the next ones find the two cores free."""
    marks = tmp_path / "marks"
    marks.mkdir()
    text = f"""
from pyspark.sql import SparkSession, functions as F
import pathlib, time
spark = SparkSession.builder.getOrCreate()

def beat(n: int) -> int:
    for second in range(3000):
        pathlib.Path("{marks}", str(n)).write_text(str(second))
        time.sleep(0.1)
    return n

spark.range(0, 2, 1, 2).select(F.udf(beat, "long")("id")).collect()
"""
    job_id = cluster.cli("run", "--detached", script(tmp_path, text)).stdout.split()[-1]
    reached(lambda: len(list(marks.iterdir())) == 2, "both run")
    assert cluster.cli("cancel", job_id).returncode == 0
    reached(lambda: client.get(f"/jobs/{job_id}")["state"] == "CANCELED", "it is cancelled")
    assert counted(cluster, tmp_path) == "5"


def test_the_loss_of_the_server_fails_the_task_and_the_next_try_works(
    cluster: ScriptCluster, client: FlinklikeClient, server: ConnectServer, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    text = f"""
from pyspark.sql import SparkSession, functions as F
import pathlib, time
spark = SparkSession.builder.getOrCreate()
pathlib.Path("{begun}").touch()
spark.range(1).select(F.udf(lambda n: time.sleep(300) or n, "long")("id")).collect()
"""
    path = script(tmp_path, text)
    job_id = cluster.cli("run", "--detached", path).stdout.split()[-1]
    reached(begun.exists, "it runs")
    server.kill()
    reached(lambda: client.get(f"/jobs/{job_id}")["state"] == "FAILED", "it has failed", timeout=120)
    (failure,) = client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
    assert f"the Spark Connect server at sc://localhost:{server.port} does not answer" in failure["stacktrace"]
    server.start()
    begun.unlink()
    assert counted(cluster, tmp_path) == "5"


def test_a_token_that_the_server_refuses_is_named_and_not_shown(server: ConnectServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("another=token/of;somebody")
    options = {
        "spark.master": server.master.replace("127.0.0.1", "localhost"),
        "taskmanager.spark.secret-file": str(token),
    }
    with ScriptCluster(options, job_masters=1) as cluster:
        done = cluster.cli("run", script(tmp_path, COUNTS))
        assert done.returncode != 0
        assert "refuses the token of this TaskManager (taskmanager.spark.secret-file)" in done.stderr
        assert "another" not in done.stderr + done.stdout
        told = [path for path in (cluster.run / "run" / "log").rglob("*") if path.is_file()]
        assert told
        assert not any("another=token" in path.read_text(errors="replace") for path in told)


def test_the_server_is_away_when_a_job_begins(tmp_path: Path) -> None:
    """The TaskManager is there, and says what is missing."""
    options = {"spark.master": "sc://127.0.0.1:1", "taskmanager.spark.allow-unauthenticated": "true"}
    with ScriptCluster(options, job_masters=1) as cluster:
        done = cluster.cli("run", script(tmp_path, COUNTS))
        assert done.returncode != 0
        assert "the Spark Connect server at sc://127.0.0.1:1 does not answer" in done.stderr

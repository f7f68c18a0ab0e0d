"""Applications and files that a URL names, through `bin/flinklike` on a real cluster with Spark."""

from __future__ import annotations

import subprocess
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ROOT, ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.spark]

SCRIPT = """
import os, sys
import helper, packed
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

def both(n):
    import helper, packed
    return helper.plus(n) + packed.ONE

spark = SparkSession.builder.getOrCreate()
print(sys.argv[1:], os.path.basename(__file__), open("in.csv").read().strip(), os.listdir("env"))
print(spark.range(3).select(udf(both, "long")("id")).groupBy().sum().first()[0])
print([row[0] for row in spark.read.csv("in.csv").collect()])
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    made = tmp_path / "served"
    made.mkdir()
    (made / "etl.py").write_text(SCRIPT)
    (made / "helper.py").write_text("def plus(n):\n    return n + 1\n")
    (made / "a.csv").write_text("7\n")
    for name, member, content in (("lib.zip", "packed.py", "ONE = 1\n"), ("env.zip", "inside.txt", "x")):
        with zipfile.ZipFile(made / name, "w") as archive:
            archive.writestr(member, content)
    return made


@pytest.fixture
def url(files: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(files)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def run(cluster: ScriptCluster, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "bin" / "flinklike"), "run", *arguments]
    done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_all_that_a_job_brings_may_lie_elsewhere(spark_cluster: ScriptCluster, url: str, files: Path) -> None:
    brought = (
        *("--py-files", f"{url}/lib.zip, local://{files}/helper.py"),
        *("--files", f"{url}/a.csv#in.csv", "--archives", f"local:{files}/env.zip#env"),
    )
    done = run(spark_cluster, *brought, f"{url}/etl.py", "day")
    assert done.stdout.splitlines() == ["['day'] etl.py 7 ['inside.txt']", "9", "['7']"]
    assert "WARNING: the working directory" not in done.stderr


def test_hadoop_reads_it_with_the_conf_of_the_job(spark_cluster: ScriptCluster, files: Path, tmp_path: Path) -> None:
    script = tmp_path / "looks.py"
    script.write_text("print(open('a.csv').read().strip())\n")
    mounted = f"spark.hadoop.fs.viewfs.mounttable.mine.link./data={files.as_uri()}"
    done = run(spark_cluster, "--conf", mounted, "--files", "viewfs://mine/data/a.csv", str(script))
    assert done.stdout == "7\n"
    done = run(spark_cluster, "--conf", mounted, "--files", "viewfs://mine/data/none.csv", str(script), code=1)
    assert "viewfs://mine/data/none.csv does not exist, as seen from this TaskManager" in done.stderr.splitlines()[-1]


def test_what_is_not_there_is_one_sentence(spark_cluster: ScriptCluster, url: str, tmp_path: Path) -> None:
    done = run(spark_cluster, f"{url}/none.py", code=1)
    assert f"{url}/none.py does not exist, as seen from this TaskManager" in done.stderr.splitlines()[-1]
    assert "fetching.py" not in done.stderr
    script = tmp_path / "plain.py"
    script.write_text("print(1)\n")
    done = run(spark_cluster, "--files", "nowhere://a/b.csv", str(script), code=1)
    assert "neither fsspec nor Hadoop of this TaskManager reads nowhere" in done.stderr.splitlines()[-1]

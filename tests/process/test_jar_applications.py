"""R53: Java applications, and jars of the client, through `bin/flinklike` on a real cluster with Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_flinklike import FlinklikeClient, Pipeline
from runtime.common.ids import JobId
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(600)]

APPLICATION = """
package mine;
import org.apache.spark.sql.SparkSession;

public class App {
    public static void main(String[] args) throws Exception {
        SparkSession spark = SparkSession.builder().getOrCreate();
        System.out.println("rows " + spark.range(Long.parseLong(args[1])).count());
        System.out.println("heap " + (Runtime.getRuntime().maxMemory() >> 20));
        System.out.println("key " + spark.conf().get("spark.my.key", "none"));
        System.out.println("name " + spark.conf().get("spark.app.name"));
        System.out.println("variable " + System.getenv("VARIABLE"));
        System.out.println("file " + new java.io.File("in.csv").length());
        String maps = new String(java.nio.file.Files.readAllBytes(new java.io.File("/proc/self/maps").toPath()));
        System.out.println("archive " + (maps.indexOf("/cds/spark-") >= 0));
        if (args[0].equals("plus")) System.out.println("plus " + Plus.plus(5));
        if (args[0].equals("throw")) throw new IllegalStateException("as asked");
        if (args[0].equals("exit")) System.exit(7);
        if (args[0].equals("hog")) {
            java.util.List held = new java.util.ArrayList();
            for (int n = 0; n < 60; n++) {
                java.nio.ByteBuffer direct = java.nio.ByteBuffer.allocateDirect(8 << 20);
                while (direct.hasRemaining()) direct.put((byte) 1);
                held.add(direct);
                if (n < 40) held.add(new byte[8 << 20]);
            }
            Thread.sleep(1000000);
        }
        if (args[0].equals("wait")) {
            new java.io.File(args[2]).createNewFile();
            Thread.sleep(1000000);
        }
    }
}
"""
LIBRARY = "package mine; public class Plus { public static long plus(long n) { return n + 2; } }"
COMPILE = """
import sys, zipfile
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
for target in sys.argv[1:]:
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(spark._jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(open(target + ".java").read())
    made = compiler.getBytecodes()
    with zipfile.ZipFile(target, "w") as jar:
        for name in list(made):
            if target.endswith("lib.jar") or name != "mine.Plus":
                jar.writestr(name.replace(".", "/") + ".class", bytes(made[name]))
"""


@pytest.fixture(scope="module")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    options = {**SPARK, "taskmanager.memory.spark.total": "2600 mb"}
    with ScriptCluster(options, class_archive=class_archive) as found:
        yield found


@pytest.fixture(scope="module")
def jars(cluster: ScriptCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with app.jar, which needs lib.jar for its mode `plus`."""
    made = tmp_path_factory.mktemp("jars")
    (made / "lib.jar.java").write_text(LIBRARY)
    (made / "app.jar.java").write_text(APPLICATION + LIBRARY.partition(";")[2].replace("public class", "class"))
    (made / "compile.py").write_text(COMPILE)
    run(cluster, str(made / "compile.py"), str(made / "lib.jar"), str(made / "app.jar"))
    return made


def run(cluster: ScriptCluster, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "bin" / "flinklike"), "run", *arguments]
    done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_an_application_has_its_conf_files_and_jars(
    cluster: ScriptCluster, jars: Path, tmp_path: Path, class_archive: Path | None
) -> None:
    (tmp_path / "in.csv").write_text("1,2\n")
    options = ("--class", "mine.App", "--jars", str(jars / "lib.jar"), "--files", str(tmp_path / "in.csv"))
    conf = ("--conf", "spark.my.key=7", "--driver-memory", "600m", "--name", "nightly")
    done = run(cluster, *options, *conf, str(jars / "app.jar"), "plus", "1000")
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert lines.pop("heap") in {"580", "600"}
    assert lines.pop("archive") == str(class_archive is not None).lower()
    assert lines == {"rows": "1000", "key": "7", "name": "nightly", "variable": "null", "file": "4", "plus": "7"}


def test_its_exit_code_is_the_end_of_the_job_and_its_exception_the_reason(cluster: ScriptCluster, jars: Path) -> None:
    done = run(cluster, "--class", "mine.App", str(jars / "app.jar"), "throw", "1", code=1)
    assert done.stderr.splitlines()[-1].endswith(
        "ApplicationError: the application ended with exit code 1: java.lang.IllegalStateException: as asked"
    )
    assert "task_runner.py" not in done.stderr
    done = run(cluster, "--class", "mine.App", str(jars / "app.jar"), "exit", "1", code=1)
    assert done.stderr.splitlines()[-1].endswith("the application ended with exit code 7")
    done = run(cluster, "--class", "mine.Missing", str(jars / "app.jar"), code=1)
    assert "Failed to load class mine.Missing" in done.stderr


def test_a_cancel_ends_its_jvm_and_its_room_is_free_again(cluster: ScriptCluster, jars: Path, tmp_path: Path) -> None:
    door = tmp_path / "waits"
    done = run(cluster, "-d", "--json", "--class", "mine.App", str(jars / "app.jar"), "wait", "1", str(door))
    job_id = json.loads(done.stdout)["job_id"]
    reached(door.exists, "the application waits")
    (jvm,) = jvms_of_applications(cluster)
    with cluster.connect() as client:
        assert memory_of_environments(client) == [768 + 512]
        client.cancel(job_id)
        reached(lambda: client.status(job_id).status.value == "CANCELED", "the job is cancelled")
        assert jvm not in cluster.processes()
        reached(lambda: not memory_of_environments(client), "its memory is free")


def test_a_lost_jvm_fails_its_job_and_no_other(cluster: ScriptCluster, jars: Path, tmp_path: Path) -> None:
    door = tmp_path / "waits"
    done = run(cluster, "-d", "--json", "--class", "mine.App", str(jars / "app.jar"), "wait", "1", str(door))
    reached(door.exists, "the application waits")
    (jvm,) = jvms_of_applications(cluster)
    os.kill(jvm, signal.SIGKILL)
    with cluster.connect() as client:
        ended = client.result_within(json.loads(done.stdout)["job_id"], wait=60)
        assert ended is not None
        assert ended.failure is not None
        assert "the JVM of the application was ended by SIGKILL, not by this TaskManager" in str(ended.failure)


def test_memory_beyond_that_of_slot_and_jvm_ends_it_with_the_figure(cluster: ScriptCluster, jars: Path) -> None:
    options = ("--driver-memory", "512m", "--conf", "spark.driver.memoryOverhead=1m")
    done = run(cluster, "--class", "mine.App", *options, str(jars / "app.jar"), "hog", "1", code=1)
    told = done.stderr.splitlines()[-1]
    assert "killed by the TaskManager: the task used" in told
    assert "and 513.0 MiB for its JVM: spark.driver.memory and spark.driver.memoryOverhead" in told


def test_what_no_task_manager_has_room_for_is_refused(cluster: ScriptCluster, jars: Path) -> None:
    done = run(cluster, "--class", "mine.App", "--driver-memory", "9g", str(jars / "app.jar"), code=1)
    assert "the JVM of the application takes 10137 MiB, and TaskManagers have at most 1320 MiB" in done.stderr


def test_jars_of_the_client_are_in_the_jvm_of_a_script_and_of_a_pipeline(
    cluster: ScriptCluster, jars: Path, tmp_path: Path
) -> None:
    script = tmp_path / "uses.py"
    script.write_text(
        "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
        "print(spark.range(4).selectExpr(\"reflect('mine.Plus', 'plus', id)\").collect()[3][0])\n"
    )
    assert run(cluster, "--jars", str(jars / "lib.jar"), str(script)).stdout == "5\n"
    assert run(cluster, str(script), code=1).stdout == ""
    pipeline = Pipeline("jars", jars=[jars / "lib.jar"])
    pipeline.source("rows", plus).sink("sum", lambda ctx, df: df.collect()[3][0])
    with cluster.connect() as client:
        (manager,) = client.get("/taskmanagers")["taskmanagers"]
        assert len(manager["spark-environments"]) == 1
        built = pipeline.build()
        client.submit(built.graph, job_id=JobId("ab" * 16), contents=built.uploads, client="test")
        ended = client.result_within(JobId("ab" * 16), wait=100)
        assert ended is not None
        assert (ended.status.value, ended.value) == ("FINISHED", "5"), ended.failure
        (manager,) = client.get("/taskmanagers")["taskmanagers"]
        assert len(manager["spark-environments"]) == 1, "the pipeline has the environment of the script"


def plus(ctx: object) -> object:
    return ctx.spark.range(4).selectExpr("reflect('mine.Plus', 'plus', id)")  # type: ignore[attr-defined]  # a TaskContext


def jvms_of_applications(cluster: ScriptCluster) -> list[int]:
    return [pid for pid, line in cluster.processes().items() if "--class mine.App" in line]


def memory_of_environments(client: FlinklikeClient) -> list[int]:
    (manager,) = client.get("/taskmanagers")["taskmanagers"]
    return [one["memory-bytes"] >> 20 for one in manager["spark-environments"]]

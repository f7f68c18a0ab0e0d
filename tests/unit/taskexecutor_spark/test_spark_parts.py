"""Small parts that need no JVM: frames, progress, static conf, files, import hygiene."""

import asyncio
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.stream_progress import StreamProgress
from runtime.taskexecutor.slot_process.job_files import copy_into
from runtime.taskexecutor.slot_process.static_conf import (
    ConfJudge,
    OtherSparkNeededError,
    StaticConfError,
    StaticConfPolicy,
    StaticConfWarning,
)
from runtime.taskexecutor.spark_host.driver import ActiveJob
from runtime.taskexecutor.spark_host.progress import progress_by_tag, unwanted_jobs
from runtime.taskexecutor.spark_protocol import frames
from runtime.taskexecutor.spark_protocol.sessions import SparkProgress
from tests.kit.spark.spark_box import ROOT


def test_frames_travel_whole() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(frames.encode({"id": 1, "text": "ä"}) + frames.encode({"id": 2}))
        assert frames.receive_frame(right) == {"id": 1, "text": "ä"}
        assert frames.receive_frame(right) == {"id": 2}
        left.close()
        assert frames.receive_frame(right) is None


@pytest.mark.asyncio
async def test_a_broken_stream_is_its_end_and_a_hostile_frame_an_error() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(frames.encode({"id": 1}) + b"\0\0")
    reader.feed_eof()
    assert await frames.read_frame(reader) == {"id": 1}
    assert await frames.read_frame(reader) is None
    reader = asyncio.StreamReader()
    reader.feed_data(b"\xff\xff\xff\xff")
    with pytest.raises(frames.FrameError):
        await frames.read_frame(reader)
    for body in (b"[1]", b"{"):
        with pytest.raises(frames.FrameError):
            frames.decode_body(body)
    with pytest.raises(frames.FrameError):
        frames.encode({"text": "x" * frames.FRAME_SIZE_MAX})


JOBS = [
    ActiveJob(1, frozenset({"a", "x"}), (1, 2)),
    ActiveJob(2, frozenset({"b"}), (3,)),
    ActiveJob(3, frozenset(), ()),
]


def test_progress_sums_the_stages_of_each_live_tag() -> None:
    stages: list[dict[str, object]] = [
        {"stageId": 1, "numTasks": 4, "numCompleteTasks": 1, "inputBytes": 7, "executorCpuTime": 5_000_000},
        {"stageId": 2, "numTasks": 2, "numActiveTasks": 2, "outputRecords": 3, "executorCpuTime": None},
        {"stageId": 3, "numTasks": 9},
        {"stageId": 8, "numTasks": 9},
    ]
    assert progress_by_tag(JOBS, stages, frozenset({"a"}), {}) == {
        "a": SparkProgress(
            jobs_active=1,
            stages_active=2,
            tasks_active=2,
            tasks_completed=1,
            tasks_total=6,
            read_bytes=7,
            write_records=3,
            cpu_millis=5,
        )
    }


def test_a_query_that_hangs_is_told_with_the_stage_that_has_most_left() -> None:
    stages: list[dict[str, object]] = [
        {"stageId": 1, "name": "one", "numTasks": 9, "numCompleteTasks": 8},
        {"stageId": 2, "name": "start at\nA.java:1", "numTasks": 4, "numCompleteTasks": 1},
        {"stageId": 3, "name": "of others", "numTasks": 90},
    ]
    streams = {"a": (StreamProgress("q", "r", busy_since_millis=7), StreamProgress("p", "s"))}
    found = progress_by_tag(JOBS, stages, frozenset({"a", "b"}), streams)["a"]
    assert [one.stage for one in found.streams] == ["stage 2, start at A.java:1", ""]
    found = progress_by_tag([], [], frozenset({"a"}), streams)["a"]
    assert [one.stage for one in found.streams] == ["", ""]


def test_jobs_without_a_live_tag_are_unwanted() -> None:
    assert unwanted_jobs(JOBS, frozenset({"a"})) == [2, 3]
    assert unwanted_jobs(JOBS[:2], frozenset({"a", "b"})) == []


WARM = {"spark.executor.memory": "1g"}

CONF: dict[str, object] = {
    "spark.app.name": "ignored",
    "spark.submit.deployMode": "ignored",
    "spark.executor.memory": "2g",
    "spark.sql.warehouse.dir": "/x",
    "spark.sql.shuffle.partitions": 3,
    "spark.sql.ansi.enabled": False,
    "mine": "yes",
}


def test_static_keys_warn_once() -> None:
    judge = ConfJudge(StaticConfPolicy.WARN, WARM)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert judge.settable(CONF) == {
                "spark.sql.shuffle.partitions": "3",
                "spark.sql.ansi.enabled": "false",
                "mine": "yes",
            }
    assert [warning.category for warning in caught] == [StaticConfWarning]


def warned(warm: dict[str, str], *confs: dict[str, object]) -> list[str]:
    judge = ConfJudge(StaticConfPolicy.WARN, warm)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for conf in confs:
            judge.settable(conf)
    return [str(one.message) for one in caught]


def test_keys_of_executors_are_told_in_one_line_and_what_says_nothing_is_not_told() -> None:
    local = {"spark.master": "local[4]", "spark.executor.memory": "1g"}
    same = {"spark.dynamicAllocation.enabled": False, "spark.shuffle.service.enabled": "false"}
    assert warned(local, {**same, "spark.executor.memory": "1024m"}) == []
    where = "no effect: Spark's tasks run in the driver's JVM here (spark.master local[4])"
    asked = {"spark.executor.cores": 2, "spark.executor.instances": 3}
    assert warned(local, {**same, **asked}, {**asked, "spark.dynamicAllocation.enabled": "true"}) == [
        f"spark.executor.cores, spark.executor.instances have {where}",
        f"spark.dynamicAllocation.enabled has {where}",
    ]


def test_a_warning_of_static_conf_is_a_line_with_the_keys_and_what_to_do() -> None:
    warm = {"spark.driver.extraJavaOptions": "-Xss4m"}
    conf: dict[str, object] = {"spark.driver.extraJavaOptions": "-Xss8m", "spark.serializer": "x"}
    (told,) = warned(warm, conf)
    assert told == (
        "spark.driver.extraJavaOptions, spark.serializer are static and have no effect here: the Spark session was "
        "started with spark.driver.extraJavaOptions '-Xss4m', spark.serializer unset. Give them as conf of the job "
        "(--conf, conf= or spark_conf=), which then gets a Spark environment where one fits, or leave them out"
    )


def test_a_warning_of_what_no_job_can_set_says_so() -> None:
    (told,) = warned({}, {"spark.sql.warehouse.dir": "/x", "spark.serializer": "x"})
    assert (
        "spark.sql.warehouse.dir: a job cannot set it: tables lie with their job, or for all jobs where "
        "taskmanager.spark.warehouse says. Give spark.serializer as conf of the job" in told
    )
    (told,) = warned({}, {"spark.sql.warehouse.dir": "/x"})
    assert "Give" not in told


def test_static_keys_can_be_refused_all_at_once() -> None:
    judge = ConfJudge(StaticConfPolicy.FAIL, WARM)
    with pytest.raises(StaticConfError) as refused:
        judge.settable(CONF)
    assert refused.value.problems == ("spark.executor.memory", "spark.sql.warehouse.dir")
    assert judge.settable({"spark.executor.memory": "1024m"}) == {}


@pytest.mark.parametrize("policy", StaticConfPolicy)
def test_a_catalog_that_the_job_has_chosen_is_not_that_of_its_code(policy: StaticConfPolicy) -> None:
    key = "spark.sql.catalogImplementation"
    judge = ConfJudge(policy, {}, {key: "in-memory"})
    with pytest.warns(StaticConfWarning, match=f"{key}=in-memory of the job wins over what its code sets"):
        assert judge.settable({key: "hive"}, is_first=True) == {}
    with pytest.raises(OtherSparkNeededError):
        ConfJudge(StaticConfPolicy.ENVIRONMENT, {}).settable({key: "hive"}, is_first=True)


def test_another_interpreter_is_said_to_have_no_effect() -> None:
    judge = ConfJudge(StaticConfPolicy.FAIL, {})
    other = {"PYSPARK_PYTHON": "/opt/env/bin/python", "PYSPARK_DRIVER_PYTHON": sys.executable}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        judge.look_for_pythons(other)
        judge.look_for_pythons(other)
        assert judge.settable({"spark.executorEnv.PYSPARK_DRIVER_PYTHON": "./env/bin/python"}) != {}
    told = [str(one.message) for one in caught]
    assert [one.partition(" has no effect")[0] for one in told] == [
        "PYSPARK_PYTHON=/opt/env/bin/python",
        "PYSPARK_DRIVER_PYTHON=./env/bin/python",
    ]
    assert sys.executable in told[0]


def test_only_local_files_can_be_added(tmp_path: Path) -> None:
    job, source = tmp_path / "job", tmp_path / "a b.py"
    job.mkdir()
    source.write_text("1")
    assert copy_into(str(job), source.as_uri()).read_text() == "1"
    source.write_text("2")
    assert copy_into(str(job), str(source)) == job / "a b.py"
    assert copy_into(str(job), str(job / "a b.py")).read_text() == "2"
    with pytest.raises(InvalidInputError, match="only local files"):
        copy_into(str(job), "s3://bucket/x.py")
    with pytest.raises(InvalidInputError, match="recursive"):
        copy_into(str(job), str(tmp_path))


def run_python(program: str) -> str:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_contract_of_the_environment_loads_no_spark() -> None:
    program = """
import runtime.taskexecutor.spark.environment_process, sys
print([name for name in ("pyspark", "py4j", "pandas", "pyarrow", "numpy") if name in sys.modules])
"""
    assert run_python(program) == "[]"


def test_what_the_worker_daemon_imports_before_it_forks_starts_no_thread() -> None:
    assert run_python("import pyspark.worker, pyspark.daemon, os; print(len(os.listdir('/proc/self/task')))") == "1"


def test_pitfall_9_pandas_is_one_that_pyspark_supports() -> None:
    load = "from runtime.taskexecutor.slot_process.attach import preload; preload()"
    program = f"{load}; import pandas; print(pandas.__version__)"
    assert int(run_python(program).split(".")[0]) < 3


def test_pitfall_9_a_newer_pandas_is_refused_before_any_task() -> None:
    program = """
import pandas
pandas.__version__ = "3.1.1"
from runtime.taskexecutor.slot_process.attach import preload
try:
    preload()
except Exception as error:
    print(error)
"""
    assert "pandas 3.1.1 is installed, pyspark needs pandas<3" in run_python(program)


@pytest.mark.parametrize("call", ["SparkSession.builder.getOrCreate()", "SparkContext.getOrCreate()"])
def test_without_spark_every_way_to_one_is_refused(call: str) -> None:
    program = f"""
import socket
from runtime.taskexecutor.slot_process.channel import Channel
from runtime.taskexecutor.slot_process.spark_attachment import SparkAttachment
SparkAttachment(Channel(socket.socketpair()[0]), has_spark=False, is_static_conf_fatal=False)
from pyspark import SparkContext
from pyspark.sql import SparkSession
try:
    {call}
except Exception as error:
    print(error)
"""
    assert run_python(program) == "this TaskManager runs without Spark (taskmanager.spark.enabled: false)"

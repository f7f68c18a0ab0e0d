"""The class archive's file: key, lock, publication."""

import os
import subprocess
import sys
from pathlib import Path

from runtime.taskexecutor.driver_jvm.archive import ClassArchive, spark_version
from runtime.taskexecutor.driver_jvm.command import java_command
from runtime.taskexecutor.driver_jvm.java import JavaRuntime, find_java

from tests.kit.spark.spark_box import ROOT  # isort: skip


def runtime(version: int, home: Path, build: str = "build") -> JavaRuntime:
    return JavaRuntime(home / "bin" / "java", home, version, build, "PATH")


def test_another_java_spark_or_class_path_has_another_archive(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    keys = {
        ClassArchive.locate(runtime(17, tmp_path), tmp_path, str(jar)).key,
        ClassArchive.locate(runtime(17, tmp_path, "other build"), tmp_path, str(jar)).key,
        ClassArchive.locate(runtime(17, tmp_path), tmp_path, f"{jar}:/b.jar").key,
    }
    jar.write_bytes(b"22")
    keys.add(ClassArchive.locate(runtime(17, tmp_path), tmp_path, str(jar)).key)
    assert len(keys) == 4


def test_options_before_and_after_publication(tmp_path: Path) -> None:
    (tmp_path / "lib" / "server").mkdir(parents=True)
    (tmp_path / "lib" / "server" / "classes.jsa").touch()
    for version, option in ((17, "-XX:SharedArchiveFile="), (25, "-XX:AOTCache=")):
        archive = ClassArchive.locate(runtime(version, tmp_path), tmp_path / str(version), "")
        assert archive.use_options() == ()
        with archive.building() as is_ours:
            assert is_ours
            target = archive.training_target()
            assert str(target) in archive.train_options(target)[-1]
            target.write_bytes(b"archive")
            archive.publish(target)
        assert archive.use_options()[0] == f"{option}{archive.file}"
        archive.discard()
        assert archive.use_options() == ()


def test_an_archive_that_does_not_fit_has_java_write_nothing_to_stdout(tmp_path: Path) -> None:
    java = find_java(os.environ)
    archive = ClassArchive.locate(java, tmp_path, "")
    archive.file.write_bytes(b"no archive")
    archive.base_file.write_bytes(b"no archive")
    command = java_command(java, conf={"spark.driver.memory": "64m"}, archive_options=archive.use_options())
    done = subprocess.run([*command[:-2], "-version"], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "[cds" not in done.stderr


def test_a_warning_of_java_is_no_output_of_its_application() -> None:
    command = java_command(find_java(os.environ), conf={"spark.driver.memory": "64m"}, archive_options=())
    unused = ["-XX:MaxNewSize=128m", "-XX:NewSize=160m"]  # each Java warns of these
    done = subprocess.run([*command[:-2], *unused, "-version"], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "warning" in done.stderr.lower()


def test_a_runtime_without_base_archive_gets_one_of_its_own(tmp_path: Path) -> None:
    archive = ClassArchive.locate(runtime(21, tmp_path), tmp_path, "")
    archive.file.touch()
    assert not archive.exists()
    archive.base_file.touch()
    assert archive.use_options()[0] == f"-XX:SharedArchiveFile={archive.base_file}:{archive.file}"


def test_one_builder_at_a_time_over_processes_and_leftovers_go(tmp_path: Path) -> None:
    archive = ClassArchive.locate(runtime(17, tmp_path), tmp_path, "")
    leftover = archive.training_target().with_suffix(".999.tmp")
    leftover.touch()
    program = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from runtime.taskexecutor.driver_jvm.archive import ClassArchive
from runtime.taskexecutor.driver_jvm.java import JavaRuntime
archive = ClassArchive(JavaRuntime(Path("j"), Path("j"), 17, "b", "PATH"), Path({str(tmp_path)!r}), {archive.key!r})
with archive.building() as is_ours:
    print(is_ours)
"""
    with archive.building() as is_ours:
        assert is_ours
        assert not leftover.exists()
        answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert answer.stdout == "False\n"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "True\n"


def test_the_version_is_read_without_an_import() -> None:
    assert spark_version().startswith("4.")

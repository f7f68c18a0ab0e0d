"""The class archive that all tests of a run share: `python -m tests.kit.spark.archive_build DIRECTORY`.

The product builds it, in the background of a running Spark host, but here at the priority of the tests: at the lowest
priority the build comes to no end on a busy machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.taskexecutor.driver_jvm.archive import ClassArchive
from runtime.taskexecutor.spark_host.archive_builder import archive_for
from tests.kit.host.levels import reached_while
from tests.kit.host.process_tree import command_of, cpu_seconds, tree
from tests.kit.spark.spark_box import SparkBox, spark_settings

GIVEN = "TEST_CLASS_ARCHIVE"
"""The variable that names the directory with the archive of this run: bin/test.sh builds it before the tests."""
_PROGRAM = "runtime.taskexecutor.spark_host.archive_builder"
_NO_NICE = "import os\n\nos.nice = int\n"


def build(directory: Path) -> ClassArchive:
    """Build it below `directory`. AssertionError when there is none at the end of the builder, or it stands still."""
    settings = spark_settings(directory, class_archive=True, warm_up_count=1)
    archive = archive_for(settings)
    with _usual_priority(directory):
        box = SparkBox(settings, directory)
    try:
        box.run(box.environment.start())
        assert not archive.exists(), "Spark is ready before there is an archive"
        host = box.environment.process_ids[0]

        def progress() -> float:  # Java writes the archive while its builder waits
            return cpu_seconds([process.pid for process in tree(host)])

        reached_while(lambda: _builders(host), "the builder's start", progress=progress)
        reached_while(lambda: not _builders(host), "the builder's end", progress=progress)
        assert archive.exists(), "the builder has ended without an archive"
        assert box.environment.is_ready
    finally:
        box.shut()
    return archive


def given(directory: Path) -> ClassArchive | None:
    """The archive that bin/test.sh has built, if it runs these tests; `directory` is for settings only."""
    built = os.environ.get(GIVEN)
    return archive_for(spark_settings(directory, archive=Path(built))) if built else None


@contextmanager
def _usual_priority(directory: Path) -> Iterator[None]:
    """Python processes that get the environment of this block cannot lower their priority."""
    (directory / "sitecustomize.py").write_text(_NO_NICE)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(directory), *([before] if before else [])])
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        if before:
            os.environ["PYTHONPATH"] = before


def _builders(host: int) -> list[int]:
    """The process that builds; none before and after."""
    return [process.pid for process in tree(host) if _PROGRAM in command_of(process)]


if __name__ == "__main__":
    made = Path(sys.argv[1])
    made.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"{build(made).file}\n")

"""`run_local()`: a pipeline on a little cluster of the caller's own."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike import Pipeline
from airflow_flinklike.api import local
from airflow_flinklike.exceptions import JobFailedError, LocalClusterError
from tests.kit.docs import Snippet, SnippetKind, doc_snippets, run_snippet
from tests.kit.host.levels import reached
from tests.kit.host.process_tree import carrying
from tests.kit.spark.spark_box import QUICK_JVM

pytestmark = pytest.mark.process

WITHOUT_SPARK = {"taskmanager.spark.enabled": "false"}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def squares(*, print_it: bool = False) -> Pipeline:
    def square(ctx: Any) -> list[int]:
        if print_it:
            print("squaring", list(ctx.splits))
        return [n * n for n in ctx.splits]

    pipeline = Pipeline("squares")
    parts = pipeline.source("square", square, splits=[1, 2, 3], parallelism=2)
    parts.gather().sink("total", lambda ctx, values: sum(sum(part) for part in values) + ctx.params.get("plus", 0))
    return pipeline


def test_the_value_comes_back_and_nothing_stays(temporary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert squares(print_it=True).run_local({"plus": 100}, conf=WITHOUT_SPARK) == 114
    assert sorted(capsys.readouterr().out.splitlines()) == ["squaring [1, 3]", "squaring [2]"]
    assert list(temporary.glob("flinklike-local-*")) == []
    assert carrying("TMPDIR", str(temporary)) == {}


def test_a_failed_job_raises_its_root_cause() -> None:
    pipeline = Pipeline("broken")
    pipeline.source("divide", lambda ctx: 1 // ctx.params["by"])
    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        pipeline.run_local({"by": 0}, conf=WITHOUT_SPARK)


def test_a_wrong_option_is_said() -> None:
    with pytest.raises(LocalClusterError, match=r"did you mean taskmanager\.spark\.enabled"):
        squares().run_local(conf={"taskmanager.spark.enable": "false"})


def test_a_cluster_that_never_becomes_ready_is_given_up(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (temporary / "hangs_at_start.py").write_text("import sys\nsys.stderr.write('thinking')\nsys.stdin.read()\n")
    monkeypatch.syspath_prepend(str(temporary))
    monkeypatch.setattr(local, "_MODULE", "hangs_at_start")
    monkeypatch.setattr(local, "_START_TIMEOUT", 1.0)
    with pytest.raises(LocalClusterError, match=r"not ready in 1 s"):
        squares().run_local(conf=WITHOUT_SPARK)
    assert carrying("TMPDIR", str(temporary)) == {}


@pytest.mark.spark
@pytest.mark.slow
def test_a_local_pipeline_has_spark() -> None:
    pipeline = Pipeline("count")
    numbers = pipeline.source("numbers", lambda ctx: ctx.spark.range(1000).selectExpr("id", "id % 3 as key"))
    counts = numbers.hash("key").apply("counts", lambda ctx, df: df.groupBy("key").count(), parallelism=2)
    counts.gather().sink("rows", lambda ctx, df: sorted([row["key"], row["count"]] for row in df.collect()))
    assert pipeline.run_local(conf=QUICK_JVM) == [[0, 334], [1, 333], [2, 333]]


ORPHAN = """
import sys, time
from airflow_flinklike import Pipeline
pipeline = Pipeline("sleeps")
pipeline.source("sleep", lambda ctx: (open(ctx.params["marker"], "w").close(), time.sleep(600)) and None)
pipeline.run_local({"marker": sys.argv[1]}, conf={"taskmanager.spark.enabled": "false"})
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_caller_that_is_stopped_leaves_nothing(temporary: Path, number: signal.Signals) -> None:
    marker = temporary / "runs"
    caller = subprocess.Popen([sys.executable, "-c", ORPHAN, str(marker)])
    try:
        reached(marker.exists, "the task runs")
        assert len(carrying("TMPDIR", str(temporary))) > len(("caller", "guard", "cluster"))
        caller.send_signal(number)
        caller.wait()
        reached(lambda: not carrying("TMPDIR", str(temporary)), "all processes have ended")
        assert list(temporary.glob("flinklike-local-*")) == []
    finally:
        caller.kill()
        caller.wait()


@pytest.mark.parametrize("snippet", doc_snippets(SnippetKind.LOCAL), ids=str)
def test_the_documented_call(snippet: Snippet, temporary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_snippet(snippet, temporary)
    assert capsys.readouterr().out == "14\n"


def test_a_rerun_gives_the_same_rows_and_a_mode_that_is_none_is_refused(tmp_path: Path) -> None:
    """As on a cluster: `ctx.output_path` overwrites unless it is told otherwise."""

    def write(ctx: Any, base: str, mode: str) -> None:
        path = Path(ctx.output_path(base, mode=mode) if mode else ctx.output_path(base))
        path.mkdir(parents=True)
        (path / f"part-{ctx.job_id}").write_text("row\n")

    def rows(mode: str = "") -> int:
        base = tmp_path / "out"
        pipeline = Pipeline("write")
        pipeline.source("write", lambda ctx: write(ctx, str(base), mode))
        pipeline.run_local(conf=WITHOUT_SPARK)
        assert (base / "_SUCCESS").exists()
        return len(list(base.glob("part-*")))

    assert [rows(), rows(), rows("append")] == [1, 1, 2]
    with pytest.raises(JobFailedError, match=r"mode='error'\): it exists already, and holds part-"):
        rows("error")
    with pytest.raises(JobFailedError, match=r"mode='replace'\): mode is one of 'overwrite', 'append', 'error'"):
        rows("replace")
    assert rows() == 1


def test_a_base_that_is_a_file_is_refused_when_the_task_asks_for_it(tmp_path: Path) -> None:
    base = tmp_path / "out"
    base.write_text("mine")
    pipeline = Pipeline("write")
    pipeline.source("write", lambda ctx: ctx.output_path(str(base)))
    with pytest.raises(JobFailedError, match="that is a file, and a base is a directory: delete the file"):
        pipeline.run_local(conf=WITHOUT_SPARK)
    assert base.read_text() == "mine"


def test_a_base_that_is_a_link_to_nothing_is_refused_when_the_task_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "away")
    pipeline = Pipeline("write")
    pipeline.source("write", lambda ctx: ctx.output_path(f"{tmp_path}/out"))
    with pytest.raises(JobFailedError, match=r"is a link to .*away', which leads to nothing: create the directory"):
        pipeline.run_local(conf=WITHOUT_SPARK)


def test_a_relative_base_is_refused() -> None:
    """It lies in the job's working directory, so the job's end would take away what the job was to keep."""
    pipeline = Pipeline("write")
    pipeline.source("write", lambda ctx: ctx.output_path("out"))
    with pytest.raises(JobFailedError, match=r"ctx.output_path\('out'\): a relative base lies in the job's working"):
        pipeline.run_local(conf=WITHOUT_SPARK)

"""`run_local()`: a pipeline on a little cluster of the caller's own."""

import re
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


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.extended), signal.SIGKILL, signal.SIGINT]
)
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
    exists, unknown = refusals([(str(tmp_path / "out"), "error"), (str(tmp_path / "out"), "replace")])
    assert "mode='error'): it exists already, and holds part-" in exists
    assert "mode='replace'): mode is one of 'overwrite', 'append', 'error'" in unknown


def refusals(asked: list[tuple[str, str]]) -> list[str]:
    """What a task is told that asks for these outputs, one after the other; each is refused."""

    def ask(ctx: Any) -> list[str]:
        said = []
        for base, mode in asked:
            try:
                ctx.output_path(base, mode=mode)
            except Exception as error:  # noqa: BLE001 - whatever its class is, users see the text
                said.append(str(error))
        return said

    pipeline = Pipeline("asks")
    pipeline.source("ask", ask)
    told: list[str] = pipeline.run_local(conf=WITHOUT_SPARK)
    assert len(told) == len(asked)
    return told


def test_a_base_that_can_be_none_is_refused_when_the_task_asks_for_it(tmp_path: Path) -> None:
    """A relative one lies in the job's working directory: the job's end would take away what the job was to keep."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("mine")
    link.symlink_to(tmp_path / "away")
    of_file, of_link, relative = refusals([(str(file), "overwrite"), (str(link), "overwrite"), ("out", "overwrite")])
    assert "that is a file, and a base is a directory: delete the file" in of_file
    assert file.read_text() == "mine"
    assert re.search(r"is a link to .*away', which leads to nothing: create the directory", of_link)
    assert "ctx.output_path('out'): a relative base lies in the job's working" in relative

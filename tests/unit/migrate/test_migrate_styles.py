"""DAG files in the styles in which people write them: the verdict of each task, and what a rewrite leaves as it was."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinklike.migrate.analysis import FileReport, analyse
from airflow_flinklike.migrate.finding import find_tasks
from airflow_flinklike.migrate.judging import judge
from airflow_flinklike.migrate.model import Verdict
from airflow_flinklike.migrate.rewriting import rewrite

DAGS = Path(__file__).parent / "dags"

VERDICTS = {
    "01_classic_with": [
        "26 load_orders: moves x1",
    ],
    "02_dag_keyword": [
        "9 sessions: moves x1",
        "18 funnels: environment x1",
    ],
    "03_taskflow_pyspark": [
        "13 count: moves x1",
        "18 bare: moves x1",
    ],
    "04_pyspark_config_kwargs": [
        "8 rows: environment x1",
    ],
    "05_default_args_connection": [
        "14 first: environment x1",
        "15 second: moves x1",
    ],
    "06_loop": [
        "11 f'load_{table}': moves x3",
    ],
    "07_factory_function": [
        "9 name: environment x2",
    ],
    "08_dag_factory": [
        "14 sales: moves x2",
    ],
    "09_task_group": [
        "9 a: environment x1",
        "10 b: environment x1",
        "12 c: moves x1",
    ],
    "10_task_group_decorator": [
        "11 load: moves x5",
        "12 check: moves x5",
    ],
    "11_mapped_expand": [
        "7 partitions: moves x4",
        "13 sizes: environment x3",
    ],
    "12_mapped_expand_kwargs": [
        "12 planned: moves x?",
        "13 listed: stays x2",
    ],
    "13_jinja": [
        "7 templated: environment x1",
        "18 text_conf: moves x1",
    ],
    "14_spread_common": [
        "14 one: moves x1",
        "15 two: moves x1",
    ],
    "15_spread_shared_with_others": [
        "9 one: moves x1",
        "10 as_user: stays x1",
        "11 plain: moves x1",
    ],
    "16_spread_computed": [
        "9 one: moves x1",
    ],
    "17_java_jar": [
        "7 scala: jar x1",
        "16 only_jar: jar x1",
    ],
    "18_kerberos": [
        "7 secured: stays x1",
        "13 with_jars: environment x1",
        "14 empty: moves x1",
    ],
    "19_livy": [
        "7 pi: stays x1",
        "15 etl: moves x1",
        "16 fire: moves x1",
        "17 scala: jar x1",
        "18 remote: moves x1",
    ],
    "20_livy_sensor": [
        "8 batch: stays x1",
    ],
    "21_spark_sql": [
        "7 totals: moves x1",
        "17 file: environment x1",
        "18 templated: stays x1",
    ],
    "22_subclass": [
        "15 ours: stays x1",
        "16 plain: moves x1",
    ],
    "23_module_import": [
        "8 first: moves x1",
        "9 second: moves x1",
    ],
    "24_import_alias": [
        "8 one: moves x1",
        "8 two: moves x1",
    ],
    "25_dotted_import": [
        "7 dotted: moves x1",
    ],
    "26_try_import": [
        "11 either: moves x1",
    ],
    "27_local_import": [
        "10 late: moves x1",
    ],
    "28_star_import": [
        "7 star: stays x1",
    ],
    "29_passed_as_value": [
        "7 ?: stays x?",
        "11 two: moves x1",
    ],
    "30_computed_values": [
        "12 conf: moves x1",
        "13 memory: environment x1",
        "14 user: stays x1",
        "15 script: moves x1",
    ],
    "31_pyspark_context": [
        "9 with_ti: stays x1",
        "13 with_context: stays x1",
        "17 with_variable: stays x1",
        "21 with_day: moves x1",
    ],
    "32_comprehension": [
        "7 f'part_{n}': moves x5",
    ],
    "33_owned_conf": [
        "7 local_dir: moves x1",
        "8 heap_in_options: stays x1",
        "13 delta: environment x1",
        "22 delta_too: environment x1",
    ],
    "34_remote_files": [
        "7 s3: moves x1",
        "8 hdfs_lib: moves x1",
        "9 file_url: moves x1",
        "10 r: stays x1",
    ],
    "35_timetables": [
        "9 twelve: moves x1",
        "12 many: environment x1",
        "15 by_data: moves x1",
    ],
    "36_branches_and_strings": [
        "8 a: moves x1",
        "8 b: moves x1",
    ],
    "37_unknown_parameter": [
        "7 new: stays x1",
        "8 nothing: stays x1",
        "9 ?: stays x1",
        "10 retried: moves x1",
    ],
    "38_method_and_lambda": [
        "9 name: moves x?",
        "12 name: moves x?",
    ],
    "39_pyspark_override": [
        "6 shared: stays x1",
        "11 other: moves x4",
    ],
    "40_name_taken": [
        "12 a: stays x1",
    ],
    "41_half_moved": [
        "8 user: stays x1",
        "14 after: moves x1",
    ],
}
"""File -> line, task, verdict and number of tasks; ? is a number that is known when the file runs."""


_TOUCHED = """
pyspark Spark Livy spark_submit Submit conn_id _kwargs verbose deploy_mode master spark_binary status_poll reconnect
conf= num_executors livy_operators
"""


def report_of(name: str, directory: Path) -> FileReport:
    file = directory / f"{name}.py"
    file.write_text((DAGS / f"{name}.dag").read_text(encoding="utf-8"), encoding="utf-8")
    report = analyse(file)
    report.settle()
    return report


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def test_every_style_is_in_the_table() -> None:
    assert sorted(VERDICTS) == sorted(path.stem for path in DAGS.glob("*.dag"))
    assert len(VERDICTS) >= 30


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdicts_of_a_style(name: str, tmp_path: Path) -> None:
    report = report_of(name, tmp_path)
    assert not report.problem
    assert [
        f"{place.line} {place.task_id or '?'}: {judgement.verdict} x"
        f"{'?' if place.count is None or not place.placements else place.count}"
        for place, judgement in report.tasks
    ] == VERDICTS[name]


@pytest.mark.parametrize("name", VERDICTS)
def test_a_rewrite_is_python_keeps_comments_and_is_done_once(name: str, tmp_path: Path) -> None:
    report = report_of(name, tmp_path)
    moving = [place for place, judgement in report.tasks if judgement.moves]
    assert report.is_changed == bool(moving)
    if report.changed_text is None or report.source is None:
        return
    ast.parse(report.changed_text)
    assert comments(report.changed_text) == comments(report.source.text)
    report.write()
    assert report.is_written
    again = analyse(report.path)
    again.settle()
    assert not again.is_changed
    assert [judgement.verdict for _, judgement in again.tasks] == [Verdict.STAYS] * (len(report.tasks) - len(moving))


@pytest.mark.parametrize("name", VERDICTS)
def test_a_rewrite_leaves_the_rest_of_the_file_as_it_was(name: str, tmp_path: Path) -> None:
    """Each line without a moved task, an import or a parameter of it is there, in the same order."""
    report = report_of(name, tmp_path)
    if report.changed_text is None or report.source is None:
        return
    changed = iter(report.changed_text.splitlines())
    touched = [*_TOUCHED.split()]
    kept = [line for line in report.source.text.splitlines() if not any(word in line for word in touched)]
    assert all(line in changed for line in kept)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["01_classic_with", "14_spread_common", "21_spark_sql", "36_branches_and_strings"])
def test_line_ends_stay(name: str, newline: str, tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    text = (DAGS / f"{name}.dag").read_text(encoding="utf-8").replace("\n", newline)
    file.write_bytes(text.encode())
    report = analyse(file)
    report.settle()
    assert report.changed_text is not None
    assert report.changed_text.count("\n") == report.changed_text.count(newline)
    assert report.changed_text.count("\r") == (report.changed_text.count("\n") if newline == "\r\n" else 0)


_TEXTS = [path.read_text(encoding="utf-8") for path in sorted(DAGS.glob("*.dag"))]


@st.composite
def spoiled(draw: st.DrawFn) -> str:
    """A style with lines that are missing, have come from another file, or have comments in odd places."""
    lines = draw(st.sampled_from(_TEXTS)).splitlines()
    for _ in range(draw(st.integers(1, 4))):
        index = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["drop", "add", "behind", "comma", "bracket"])):
            case "drop" if len(lines) > 1:
                del lines[index]
            case "add":
                lines.insert(index, draw(st.sampled_from(draw(st.sampled_from(_TEXTS)).splitlines())))
            case "behind":
                lines[index] += "  # behind"
            case "comma":
                lines[index] = lines[index].replace(",", ",  # comma\n   ", 1)
            case _:
                lines[index] = lines[index].replace("(", "(  # bracket\n", 1)
    return "\n".join(lines) + "\n"


@given(spoiled(), st.sampled_from(["flinklike_default", "cluster_b"]))
def test_whatever_a_file_looks_like_its_rewrite_is_python_with_all_its_comments(text: str, conn_id: str) -> None:
    with suppress(SyntaxError):
        found = find_tasks(text)
        judgements = {place: judge(place, conn_id) for place in found.places}
        changed = rewrite(text, found, judgements)
        assert comments(changed) == comments(text)
        again = find_tasks(changed)
        left = {place: judge(place, conn_id) for place in again.places}
        assert not [place.line for place, judgement in left.items() if judgement.moves]

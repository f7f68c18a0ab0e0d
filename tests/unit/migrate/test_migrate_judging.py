"""Verdicts from parameters, and the totals that follow from them."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.migrate.analysis import FileReport, analyse
from airflow_flinklike.migrate.confs import ENVIRONMENTS_BYTES, WARM_BYTES
from airflow_flinklike.migrate.judging import judge
from airflow_flinklike.migrate.model import Act, Computed, Judgement, Kind, Origin, Parameter, Place, Verdict
from airflow_flinklike.migrate.parameters import CONNECTIONS, DROPPED, HOLDING, KEPT, RENAMED
from airflow_flinklike.migrate.reporting import as_text
from airflow_flinklike.migrate.summary import rounded, summarize
from airflow_flinklike.operators.spark_parameters import UNSUPPORTED
from runtime.common.spark_environments import OVERHEAD_BYTES_MIN, environment_key
from runtime.config.options.taskmanager import SPARK_MEMORY
from runtime.config.spark_memory import ENVIRONMENT_BYTES_DEFAULT


def judged(kind: Any = Kind.SPARK_SUBMIT, /, **values: Any) -> Judgement:
    given = {"application": "a.py"} if kind is Kind.SPARK_SUBMIT else {}
    parameters = {name: Parameter(value) for name, value in {**given, **values}.items()}
    return judge(Place(kind, 1, "t", ast.Name("x"), parameters=parameters))


def acts(judgement: Judgement) -> dict[str, tuple[Act, str]]:
    return {change.name: (change.act, change.text) for change in judgement.changes}


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_every_parameter_that_the_operator_explains_has_a_verdict(name: str) -> None:
    tables = (KEPT, RENAMED, DROPPED, HOLDING)
    assert sum(name in table[Kind.SPARK_SUBMIT] for table in tables) == 1


@pytest.mark.parametrize("kind", Kind)
def test_no_parameter_has_two_verdicts(kind: Kind) -> None:
    names = [*KEPT[kind], *RENAMED[kind], *DROPPED[kind], *HOLDING[kind], CONNECTIONS[kind]]
    assert len(names) == len({*names})


@pytest.mark.parametrize("name", sorted(HOLDING[Kind.SPARK_SUBMIT]))
def test_what_holds_a_task_says_why(name: str) -> None:
    assert judged(**{name: "x"}).verdict is Verdict.STAYS
    assert judged(**{name: "x"}).reasons[0].startswith(f"{name}: ")
    assert "known when it runs" in judged(**{name: Computed("USER")}).reasons[0]
    assert acts(judged(**{name: None})) == {name: (Act.DROP, "")}


def test_tasks_with_the_same_static_conf_have_one_key() -> None:
    by_parameter = judged(driver_memory="2g")
    by_conf = judged(conf={"spark.driver.memory": "2048m", "spark.sql.shuffle.partitions": 3})
    assert by_parameter.verdict is by_conf.verdict is Verdict.ENVIRONMENT
    assert by_parameter.environments == by_conf.environments == (environment_key({"spark.driver.memory": "2g"}),)


def test_conf_that_each_warm_spark_has_gives_no_environment() -> None:
    assert judged(conf={"spark.ui.enabled": False, "spark.ui.showConsoleProgress": "False"}).verdict is Verdict.MOVES
    assert judged(conf={"spark.ui.enabled": "true"}).verdict is Verdict.ENVIRONMENT


@pytest.mark.parametrize(
    ("application", "verdict", "notes"),
    [
        (Computed("HOME / 'a.py'", "a.py"), Verdict.MOVES, ()),
        (Computed("HOME / 'a.jar'", "a.jar"), Verdict.JAR, ()),
        (Computed("PATH"), Verdict.MOVES, ("the application is known when it runs: a jar needs java_class",)),
    ],
)
def test_the_end_of_a_path_tells_what_it_is(application: Computed, verdict: Verdict, notes: tuple[str, ...]) -> None:
    found = judged(application=application)
    assert (found.verdict, found.notes) == (verdict, notes)


def test_an_option_wins_over_conf() -> None:
    found = judged(driver_memory="3g", conf={"spark.driver.memory": "2g"})
    assert found.environments == judged(driver_memory="3g").environments


def test_executors_give_no_environment_and_are_told() -> None:
    found = judged(num_executors=3, executor_memory="2g", conf={"spark.dynamicAllocation.enabled": True})
    assert found.verdict is Verdict.MOVES
    assert "without effect" in found.notes[0]
    assert judged(conf={"spark.dynamicAllocation.enabled": False, "spark.shuffle.service.enabled": "False"}).notes == ()


@pytest.mark.parametrize("value", ["{{ params.memory }}", Computed("memory()")])
def test_a_key_that_a_run_decides_is_said_so(value: Any) -> None:
    assert judged(driver_memory=value).environments == (None,)


def test_hive_without_a_metastore_is_an_environment_of_the_job_alone() -> None:
    alone = judged(conf={"spark.sql.catalogImplementation": "hive"})
    shared = judged(
        conf={"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": "thrift://m:9083"}
    )
    assert alone.environments == ("the job's own",)
    assert len(str(shared.environments[0])) == 16


def test_a_mapped_conf_has_several_keys() -> None:
    parameters = {
        "application": Parameter("a.py"),
        "driver_memory": Parameter(["2g", "4g", "2g"], Origin.MAPPED),
    }
    found = judge(Place(Kind.SPARK_SUBMIT, 1, "t", ast.Name("x"), parameters=parameters))
    assert len(found.environments) == 2


@pytest.mark.parametrize(
    "values",
    [{"application": "a.jar"}, {"java_class": "Main", "application": "{{ var.value.jar }}"}],
)
def test_a_jar_is_a_jar(values: dict[str, Any]) -> None:
    assert judged(**values).verdict is Verdict.JAR


def test_the_connection_is_left_out_or_named() -> None:
    assert acts(judged(conn_id="spark_default")) == {"conn_id": (Act.DROP, "")}
    assert acts(judged()) == {}
    place = Place(Kind.SPARK_SUBMIT, 1, "t", ast.Name("x"), parameters={"application": Parameter("a.py")})
    assert acts(judge(place, "cluster_b")) == {"conn_id": (Act.SET, '"cluster_b"')}


def test_livy_waits_as_before() -> None:
    base = {"file": "a.py", "args": []}
    assert acts(judged(Kind.LIVY, **base))["wait_for_completion"] == (Act.SET, "False")
    assert "wait_for_completion" not in acts(judged(Kind.LIVY, **base, polling_interval=5))
    assert "wait_for_completion" not in acts(judged(Kind.LIVY, **base, deferrable=True))
    assert judged(Kind.LIVY, **base, polling_interval=Computed("X")).verdict is Verdict.STAYS
    assert acts(judged(Kind.LIVY, **base, polling_interval=5))["args"] == (Act.RENAME, "application_args")


@pytest.mark.parametrize(
    ("memory", "verdict", "told"),
    [
        (
            "768m",
            Verdict.ENVIRONMENT,
            "leave out driver_memory (or spark.driver.memory) of 768m: the warm Spark has",
        ),
        ("1024m", Verdict.MOVES, ""),
        ("3g", Verdict.ENVIRONMENT, ""),
        ("100g", Verdict.ENVIRONMENT, "needs taskmanager.memory.spark.total of at least 112 gb: its JVM takes 110 gb"),
    ],
)
def test_a_heap_that_changes_nothing_or_does_not_fit_is_told(memory: str, verdict: Verdict, told: str) -> None:
    found = judged(driver_memory=memory)
    assert found.verdict is verdict
    assert any(note.startswith(told) for note in found.notes) if told else not found.notes


def test_the_cluster_without_configuration_is_what_verdicts_are_about() -> None:
    assert SPARK_MEMORY.default + OVERHEAD_BYTES_MIN == WARM_BYTES
    assert ENVIRONMENTS_BYTES == ENVIRONMENT_BYTES_DEFAULT


@pytest.mark.parametrize("value", ["/x/*.csv", "/a.csv, s3a://b/part-?.csv", ["/a.csv", "/x/{a,b}.csv"]])
def test_a_pattern_of_files_keeps_a_task(value: Any) -> None:
    assert "is a pattern, and none is taken: name each file" in judged(files=value).reasons[0]
    assert judged(files="https://h/a.csv?sig=x, /b/{{ ds }}.csv").verdict is Verdict.MOVES


# --- totals -----------------------------------------------------------------------------------------------

_HEAD = """from airflow import DAG
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator as S
"""


def report(directory: Path, body: str) -> FileReport:
    file = directory / "dag.py"
    file.write_text(_HEAD + body)
    found = analyse(file)
    found.settle()
    return found


def test_starts_a_day_follow_from_the_schedules(tmp_path: Path) -> None:
    body = """
with DAG("hourly", schedule="@hourly"):
    S(task_id="a", application="a.py")
    S(task_id="b", application="a.py", driver_memory="2g")
    S(task_id="c", application="a.py", driver_memory="2g")
    S(task_id="d", application="a.jar")
    S(task_id="e", application="a.py", proxy_user="x")
with DAG("manual", schedule=None):
    S(task_id="f", application="a.py")
"""
    found = summarize([report(tmp_path, body)], start_seconds=10)
    assert found.starts_before == pytest.approx(5 * 24)
    # One start an hour for the shared environment, and those of the jar and of the task that stays.
    assert found.starts_after == pytest.approx(3 * 24)
    assert found.seconds_saved == pytest.approx(2 * 24 * 10)
    assert found.unscheduled == 1
    (environment,) = found.environments.values()
    assert (environment.tasks, environment.places) == (2, 2)


def test_what_the_cluster_needs_is_estimated(tmp_path: Path) -> None:
    body = """
with DAG("nightly", schedule="@daily"):
    S(task_id="a", application="a.py")
    S(task_id="b", application="a.py", driver_memory="2g")
    S(task_id="c", application="a.py", driver_memory="2048m")
    S(task_id="d", application="a.py", conf={"spark.serializer": "K"})
    S(task_id="e", application="a.jar", driver_memory="8g")
    S(task_id="f", application="a.py", proxy_user="x", driver_memory="9g")
"""
    found = report(tmp_path, body)
    totals = summarize([found])
    assert totals.environment_bytes == (2560 + 1536) << 20
    assert (totals.own_jvms, totals.own_jvm_bytes) == (1, 8 * 1024 * 1.1 * (1 << 20) // 1 + 1)
    assert totals.largest_run == ("nightly", 5)
    text = as_text([found], totals)
    assert "Slots: up to 5 tasks that move are in one run of a DAG (nightly)." in text
    assert "Memory: the environments (2) take 4 gb if all are there at once, the largest 2.5 gb, each with" in text
    assert "Memory: JVMs of one task alone (1) take up to 8.8 gb each." in text


def test_an_environment_that_is_used_often_stays_warm(tmp_path: Path) -> None:
    body = 'with DAG("often", schedule="*/10 * * * *"):\n    S(task_id="a", application="a.py", driver_memory="2g")\n'
    found = summarize([report(tmp_path, body)])
    assert (found.starts_before, found.starts_after) == (144, 1)


def test_static_conf_of_the_application_counts(tmp_path: Path) -> None:
    script = tmp_path / "etl.py"
    script.write_text("from pyspark.sql import SparkSession\nSparkSession.builder.config('spark.serializer', 'K')\n")
    body = f'with DAG("d", schedule=None):\n    S(task_id="a", application="{script}")\n'
    ((_, judgement),) = report(tmp_path, body).tasks
    assert judgement.environments == (environment_key({"spark.serializer": "K"}),)


def test_scripts_that_are_not_here_are_counted(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("pass")
    body = (
        'with DAG("d", schedule=None):\n'
        f'    S(task_id="a", application="{tmp_path}/here.py")\n'
        f'    S(task_id="b", application="{tmp_path}/gone.py")\n'
        '    S(task_id="c", application=f"{HOME}/c.py")\n'
        '    S(task_id="d", application="d.jar", java_class="D")\n'
    )
    assert summarize([report(tmp_path, body)]).unseen_scripts == 2


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (5317.2, "5 317"), (0.033, "0.03"), (6.42, "6.4"), (12, "12")])
def test_numbers_are_rounded_for_people(number: float, text: str) -> None:
    assert rounded(number) == text


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"application": "a.jar", "py_files": "lib.zip"}, "py_files: an application in a jar reads no Python files"),
        ({"application": "a.py", "java_class": "Main"}, "java_class: a.py is a script, and has no main class"),
    ],
)
def test_what_an_application_cannot_have_keeps_it(values: dict[str, Any], told: str) -> None:
    found = judged(**values)
    assert found.verdict is Verdict.STAYS
    assert found.reasons[0].startswith(told)


def test_an_empty_value_that_takes_back_a_default_stays() -> None:
    place = Place(Kind.SPARK_SUBMIT, 1, "t", ast.Name("x"), parameters={"proxy_user": Parameter(None)})
    place.parameters["application"] = Parameter("a.py")
    assert [change.name for change in judge(place).changes] == ["proxy_user"]
    assert not judge(dataclasses.replace(place, default_names=frozenset({"proxy_user"}))).changes


def test_each_kind_of_url_has_its_note() -> None:
    notes = judged(application="local:///opt/a.py", files="hdfs:///in.csv, local:/x").notes
    assert [note.partition(" is ")[2][:20] for note in notes] == ["a file of each TaskM", "fetched where the ta"]

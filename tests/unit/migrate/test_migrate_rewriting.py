"""Rewrites of single constructs: imports, connections, mappings that several calls share."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_flinklike.migrate.analysis import analyse
from airflow_flinklike.migrate.model import Verdict

_SUBMIT = "from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator"
_NEW = "from airflow_flinklike.operators.submit import FlinklikeSubmitOperator"


def rewritten(directory: Path, text: str, conn_id: str = "flinklike_default") -> str:
    file = directory / "dag.py"
    file.write_text(text)
    report = analyse(file, conn_id)
    report.settle()
    assert not report.problem
    return text if report.changed_text is None else report.changed_text


def verdicts(directory: Path, text: str) -> list[Verdict]:
    file = directory / "dag.py"
    file.write_text(text)
    report = analyse(file)
    report.settle()
    return [judgement.verdict for _, judgement in report.tasks]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_SUBMIT, _NEW),
        (f"{_SUBMIT}  # heavy", f"{_NEW}  # heavy"),
        (f"import os; {_SUBMIT}", f"import os; {_NEW}"),
        (f"{_SUBMIT}\n{_NEW}", f"{_NEW}"),
        (
            "from airflow.providers.apache.spark.operators.spark_submit import (\n    SparkSubmitOperator,  # jobs\n)",
            f"{_NEW}  # jobs",
        ),
        (
            "from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator, Other",
            f"from airflow.providers.apache.spark.operators.spark_submit import Other\n{_NEW}",
        ),
        (f"if True:\n    {_SUBMIT}", f"if True:\n    {_NEW}"),
    ],
)
def test_an_import_that_nothing_uses_goes(before: str, after: str, tmp_path: Path) -> None:
    call = "\nSparkSubmitOperator(task_id='a', application='a.py')\n"
    assert rewritten(tmp_path, before + call) == after + call.replace("Spark", "Flinklike")


@pytest.mark.parametrize(
    "use",
    [
        "x = isinstance(task, SparkSubmitOperator)",
        "SparkSubmitOperator(task_id='b', application='a.py', proxy_user='x')",
        "__all__ = ['SparkSubmitOperator']",
        "SparkSubmitOperator.template_fields += ('x',)",
    ],
)
def test_an_import_that_something_uses_stays(use: str, tmp_path: Path) -> None:
    text = f"{_SUBMIT}\nSparkSubmitOperator(task_id='a', application='a.py')\n{use}\n"
    changed = rewritten(tmp_path, text)
    assert changed == f"{_SUBMIT}\n{_NEW}\nFlinklikeSubmitOperator(task_id='a', application='a.py')\n{use}\n"


def test_each_function_imports_for_itself(tmp_path: Path) -> None:
    text = (
        f"def a():\n    {_SUBMIT}\n    return SparkSubmitOperator(task_id='a', application='a.py')\n"
        f"def b():\n    {_SUBMIT}\n    return SparkSubmitOperator(task_id='a', application='a.py', keytab='k')\n"
    )
    changed = rewritten(tmp_path, text)
    assert changed.count(_NEW) == 1
    assert changed.count(_SUBMIT) == 1
    assert changed.index(_NEW) < changed.index(_SUBMIT)


def test_a_call_without_its_import_stays(tmp_path: Path) -> None:
    text = f"def a():\n    {_SUBMIT}\ndef b():\n    SparkSubmitOperator(task_id='a', application='a.py')\n"
    assert verdicts(tmp_path, text) == [Verdict.STAYS]
    assert verdicts(tmp_path, f"{_SUBMIT}\nx = f\"{{SparkSubmitOperator(task_id='a', application='a')}}\"\n") == [
        Verdict.STAYS
    ]


def test_the_connection_can_be_named(tmp_path: Path) -> None:
    text = (
        f"{_SUBMIT}\n"
        "SparkSubmitOperator(task_id='a', application='a.py')\n"
        "SparkSubmitOperator(task_id='b', application='a.py', conn_id='spark')\n"
    )
    assert rewritten(tmp_path, text, "cluster_b") == (
        f"{_NEW}\n"
        "FlinklikeSubmitOperator(conn_id=\"cluster_b\", task_id='a', application='a.py')\n"
        "FlinklikeSubmitOperator(task_id='b', application='a.py', conn_id=\"cluster_b\")\n"
    )


def test_the_bare_decorator_gets_the_connection(tmp_path: Path) -> None:
    text = "from airflow.sdk import task\n@task.pyspark\ndef f(spark):\n    return 1\n"
    assert '@task.flinklike(conn_id="cluster_b")\n' in rewritten(tmp_path, text, "cluster_b")


_DAG = "from airflow.sdk import DAG\nfrom airflow.sdk import TaskGroup\nfrom acme import DEFAULTS, company_dag\n"
_TASK = "SparkSubmitOperator(task_id='a', application='a.py')"
_COMMON = "C = dict(verbose=True, conn_id='x', driver_memory='2g', principal=None)"


@pytest.mark.parametrize(
    ("spread", "after"),
    [
        ("**C", '**{**C, "conn_id": "flinklike_default"}'),
        ("**C, retries=1", '**{**C, "conn_id": "flinklike_default"}, retries=1'),
        ("**(C or {})", '**{**((C or {})), "conn_id": "flinklike_default"}'),
        ("**(C  # shared\n)", '**{**(C  # shared\n), "conn_id": "flinklike_default"}'),
        ("**dict(C, retries=1)", '**{**dict(C, retries=1), "conn_id": "flinklike_default"}'),
        ("**elsewhere", '**{**elsewhere, "conn_id": "flinklike_default"}'),
    ],
)
def test_a_mapping_that_a_task_takes_stays_as_it_is(spread: str, after: str, tmp_path: Path) -> None:
    """Another file may import it, and its tasks may stay."""
    text = f"{_SUBMIT}\n{_COMMON}\nSparkSubmitOperator(task_id='a', application='a.py', {spread})\n"
    call = f"FlinklikeSubmitOperator(task_id='a', application='a.py', {after})\n"
    assert rewritten(tmp_path, text) == f"{_NEW}\n{_COMMON}\n{call}"


def test_a_mapping_that_is_expanded_gets_no_connection(tmp_path: Path) -> None:
    text = (
        f"{_SUBMIT}\nM = {{'conf': [{{}}, {{}}]}}\n"
        "SparkSubmitOperator.partial(task_id='a', application='a.py').expand(**M)\n"
        "SparkSubmitOperator.partial(task_id='b', application='a.py').expand(**elsewhere)\n"
    )
    assert rewritten(tmp_path, text) == text.replace(_SUBMIT, _NEW).replace(
        "SparkSubmitOperator.", "FlinklikeSubmitOperator."
    )


@pytest.mark.parametrize(
    ("task", "where"),
    [
        ("SparkSubmitOperator(task_id='a', application='a.py', **C)", "a mapping taken with **"),
        ("with DAG('d', default_args=C):\n    SparkSubmitOperator(task_id='a', application='a.py')", "default_args"),
    ],
)
def test_what_has_no_effect_in_a_mapping_that_stays_is_told_once(task: str, where: str, tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_text(f"from airflow.sdk import DAG\n{_SUBMIT}\n{_COMMON}\n{task}\n{task}\n")
    report = analyse(file)
    report.settle()
    assert [line.partition(" (")[0] for line in report.advice] == [
        f"verbose of {where} has no effect for tasks that move"
    ]


_WITH = "with DAG('d', default_args={'retries': 1, 'verbose': True, 'executor_memory': '1g'})"


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (_WITH, f"{_TASK}\n    {_TASK} >> {_TASK}"),
        (_WITH, f"for n in [1, 2]:\n        {_TASK}"),
        (_WITH, "SparkSubmitOperator.partial(task_id='a', application='a.py').expand(application_args=rows())"),
        (f"{_WITH} as d", _TASK),
    ],
)
def test_default_args_of_tasks_that_move_lose_what_has_no_effect(head: str, body: str, tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_text(f"from airflow.sdk import DAG\n{_SUBMIT}\n{head}:\n    {body}\n")
    report = analyse(file)
    report.settle()
    assert "default_args={'retries': 1, 'executor_memory': '1g'}" in (report.changed_text or "")
    assert report.advice == []


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (_WITH, f"{_TASK}\n    SparkSubmitOperator(task_id='a', application='a.py', keytab='k')"),
        (_WITH, f"{_TASK}\n    EmptyOperator(task_id='b')"),
        (_WITH, f"{_TASK}\n    made()"),
        (_WITH, f"{_TASK}\n    @task\n    def f():\n        pass"),
        (f"{_WITH} as d", f"{_TASK}\nEmptyOperator(task_id='b', dag=d)"),
        (_WITH.replace("default_args={", "default_args={**D, "), _TASK),
    ],
)
def test_default_args_that_others_take_stay(head: str, body: str, tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_text(f"from airflow.sdk import DAG\n{_SUBMIT}\nD = {{}}\n{head}:\n    {body}\n")
    report = analyse(file)
    report.settle()
    is_spread = "**D" in head
    assert ("'verbose': True" in (report.changed_text or "")) is not is_spread
    assert len(report.advice) == (not is_spread)


def test_keys_of_a_named_conf_say_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    task = "SparkSubmitOperator(task_id='a', application='a.py', conf="
    file.write_text(f"{_SUBMIT}\nCONF = {{'spark.local.dir': '/x'}}\n{task}CONF)\n{task}{{**CONF, 'a': 1}})\n")
    named, spread = analyse(file).judgements.values()
    told = "spark.local.dir: write conf out in the call, where --write takes them out, or delete them from "
    assert (named.reasons[-1], spread.reasons[-1]) == (f"{told}CONF", f"{told}its mapping")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("retries=1,\n    verbose=True, master='yarn')", "retries=1)"),
        ("retries=1,\n    verbose=True)", "retries=1)"),
        ("retries=1,\n    verbose=True\n)", "retries=1,\n)"),
        ("retries=1,  # kept\n    verbose=True)", "retries=1,  # kept\n    )"),
    ],
)
def test_parameters_that_go_leave_no_empty_line(before: str, after: str, tmp_path: Path) -> None:
    text = f"{_SUBMIT}\nSparkSubmitOperator(task_id='a', application='a.py', {before}\n"
    assert rewritten(tmp_path, text).splitlines()[1:] == (
        f"FlinklikeSubmitOperator(task_id='a', application='a.py', {after}".splitlines()
    )


def test_an_imported_mapping_serves_tasks_that_stay_as_before(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(
        f"{_SUBMIT}\n{_COMMON}\ndef make(**kw):\n    return SparkSubmitOperator(**C, **kw)\n"
    )
    other = f"{_SUBMIT}\nfrom base import C\nSparkSubmitOperator(task_id='b', application='a.py', keytab='k', **C)\n"
    (tmp_path / "other.py").write_text(other)
    for file in tmp_path.iterdir():
        report = analyse(file)
        report.settle()
        report.write()
    assert _COMMON in (tmp_path / "base.py").read_text()
    assert "Flinklike" in (tmp_path / "base.py").read_text()
    assert (tmp_path / "other.py").read_text() == other


def test_a_mapping_with_names_of_livy_holds_its_task(tmp_path: Path) -> None:
    text = (
        "from airflow.providers.apache.livy.operators.livy import LivyOperator\n"
        "C = dict(file='a.py', livy_conn_id='l', polling_interval=5)\n"
        "LivyOperator(task_id='a', **C)\n"
    )
    assert rewritten(tmp_path, text) == text


_SHIELDED = "FlinklikeSubmitOperator(conn_id=\"flinklike_default\", task_id='a', application='a.py')"


@pytest.mark.parametrize(
    "before",
    [
        f"with DAG('d', default_args=DEFAULTS):\n    {_TASK}\n",
        f"with DAG('d', default_args={{**DEFAULTS, 'retries': 1}}):\n    {_TASK}\n",
        f"with DAG('d', **DEFAULTS):\n    {_TASK}\n",
        f"with DAG('d'), TaskGroup('g', default_args=DEFAULTS):\n    {_TASK}\n",
        f"with company_dag('d'):\n    {_TASK}\n",
        f"def make():\n    return {_TASK}\n",
        f"make = lambda: {_TASK}\n",
        f"class Maker:\n    def make(self):\n        return {_TASK}\n",
    ],
)
def test_default_args_that_only_a_run_knows_give_no_connection(before: str, tmp_path: Path) -> None:
    text = f"{_SUBMIT}\n{_DAG}{before}"
    assert rewritten(tmp_path, text) == text.replace(_SUBMIT, _NEW).replace(_TASK, _SHIELDED)


@pytest.mark.parametrize(
    "before",
    [
        f"with DAG('d', default_args={{'retries': 1}}), TaskGroup('g', default_args=None):\n    {_TASK}\n",
        f"def make():\n    return {_TASK}\nwith DAG('d'):\n    make()\n",
    ],
)
def test_default_args_that_are_in_sight_cost_no_connection(before: str, tmp_path: Path) -> None:
    text = f"{_SUBMIT}\n{_DAG}{before}"
    assert "conn_id" not in rewritten(tmp_path, text)


def test_default_args_start_no_environment_for_a_task_that_never_took_them(tmp_path: Path) -> None:
    text = (
        "from airflow.sdk import DAG, task\n"
        "from airflow.providers.apache.spark.operators.spark_sql import SparkSqlOperator\n"
        f"{_SUBMIT}\n"
        "with DAG('d', default_args={'driver_memory': '8g', 'packages': None, 'executor_memory': '4g'}):\n"
        "    SparkSqlOperator(task_id='a', sql='select 1')\n"
        "    SparkSubmitOperator(task_id='b', application='b.py')\n"
        "    @task.pyspark\n    def c(spark):\n        pass\n    c()\n"
    )
    assert verdicts(tmp_path, text) == [Verdict.MOVES, Verdict.ENVIRONMENT, Verdict.MOVES]
    changed = rewritten(tmp_path, text)
    assert "FlinklikeSqlOperator(driver_memory=None, task_id='a', sql='select 1')\n" in changed
    assert "FlinklikeSubmitOperator(task_id='b', application='b.py')\n" in changed
    assert "@task.flinklike(driver_memory=None)\n" in changed


def test_places_of_a_driver_go_from_a_literal_conf(tmp_path: Path) -> None:
    text = (
        f"{_SUBMIT}\n"
        "SparkSubmitOperator(task_id='a', application='a.py', conf={\n"
        "    'spark.driver.host': 'airflow-worker',  # of this host\n"
        "    'spark.sql.shuffle.partitions': 3,\n"
        "    'spark.driver.bindAddress': '0.0.0.0'})\n"
    )
    assert rewritten(tmp_path, text) == (
        f"{_NEW}\n"
        "FlinklikeSubmitOperator(task_id='a', application='a.py', conf={\n"
        "    # of this host\n"
        "    'spark.sql.shuffle.partitions': 3})\n"
    )
    shared = text.replace("conf={", "conf=C)\nC = dict({").replace("})", "})")
    assert verdicts(tmp_path, shared.replace("conf=C)", "conf=C)")) == [Verdict.STAYS]


def test_names_in_default_args_hold_a_task(tmp_path: Path) -> None:
    text = (
        "from airflow import DAG\nfrom airflow.providers.apache.livy.operators.livy import LivyOperator\n"
        "with DAG('d', default_args={'file': 'a.py', 'polling_interval': 5}):\n    LivyOperator(task_id='a')\n"
    )
    assert verdicts(tmp_path, text) == [Verdict.STAYS]


def test_a_file_that_is_no_python_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_text(f"{_SUBMIT}\nprint 'old'\n")
    assert analyse(file).problem.startswith("it is no Python: line 2: ")

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


def test_a_shared_mapping_changes_only_when_all_that_use_it_move_alike(tmp_path: Path) -> None:
    text = (
        f"{_SUBMIT}\nC = {{'verbose': True, 'conn_id': 'x'}}\nSparkSubmitOperator(task_id='a', application='a', **C)\n"
    )
    assert "C = {}" in rewritten(tmp_path, text)
    assert verdicts(tmp_path, text + "print(C)\n") == [Verdict.STAYS]
    assert verdicts(tmp_path, text + "other(**C)\n") == [Verdict.STAYS]
    held = "SparkSubmitOperator(task_id='b', application='a', keytab='k', **C)\n"
    assert verdicts(tmp_path, text + held) == [Verdict.STAYS, Verdict.STAYS]
    assert verdicts(tmp_path, text.replace("C = {", "C = {**D, ").replace("C = ", "D = {'retries': 1}\nC = ")) == [
        Verdict.MOVES
    ]


def test_names_of_a_shared_mapping_are_renamed(tmp_path: Path) -> None:
    text = (
        "from airflow.providers.apache.livy.operators.livy import LivyOperator\n"
        "C = dict(\n    file='a.py',\n    livy_conn_id='l',  # the old one\n    polling_interval=5,\n)\n"
        "LivyOperator(task_id='a', **C)\n"
    )
    assert rewritten(tmp_path, text) == (
        f"{_NEW}\nC = dict(\n    application='a.py',\n    # the old one\n)\nFlinklikeSubmitOperator(task_id='a', **C)\n"
    )


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
        "    'spark.sql.shuffle.partitions': 3,\n"
        "    })\n"
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

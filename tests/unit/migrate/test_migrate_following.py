"""Files that are read together: what one defines, and others use."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_flinklike.migrate.analysis import FileReport, analyse_all
from airflow_flinklike.migrate.summary import summarize

_BASE = """
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator as S
class Ours(S):
    template_fields = (*S.template_fields, "team")
def make(name):
    return S(task_id=name, application="a.py")
"""


def reports_of(folder: Path, **texts: str) -> dict[str, FileReport]:
    """The files `dags/<name>.py`, where `__` is a directory, beside `dags/sub/base.py`."""
    for name, text in {"sub__base": _BASE, **texts}.items():
        file = folder / "dags" / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = analyse_all(sorted((folder / "dags").rglob("*.py")))
    for one in found:
        one.settle()
    return {one.path.stem: one for one in found}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one", "from sub.base import Ours\nOurs(task_id='a')\n"),
        ("one", "from dags.sub.base import Ours as O\nO(task_id='a')\n"),
        ("one", "from sub import base\nbase.Ours(task_id='a')\n"),
        ("one", "import sub.base\nsub.base.Ours(task_id='a')\n"),
        ("sub__one", "from .base import Ours\nOurs(task_id='a')\n"),
        ("sub__one", "from . import base\nbase.Ours(task_id='a')\n"),
        ("sub__deep__one", "from ..base import Ours\nOurs(task_id='a')\n"),
    ],
)
def test_a_subclass_of_another_file_is_a_task_that_stays(name: str, text: str, tmp_path: Path) -> None:
    ((place, judgement),) = reports_of(tmp_path, **{name: text})["one"].tasks
    assert (place.task_id, judgement.verdict) == ("a", "stays")
    assert " is a subclass of SparkSubmitOperator, in another file: change " in judgement.reasons[0]


def test_a_subclass_of_a_subclass_is_one(tmp_path: Path) -> None:
    middle = "from sub.base import Ours\nclass Mine(Ours):\n    pass\n"
    found = reports_of(tmp_path, middle=middle, one="from middle import Mine\nMine(task_id='a')\n")
    assert [place.line for place, _ in found["one"].tasks] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "from elsewhere.base import Ours\nOurs(task_id='a')\n",
        "from sub.base import Other as Ours\nOurs(task_id='a')\n",
        "Ours = print\nOurs('a')\n",
    ],
)
def test_another_class_of_that_name_is_none(text: str, tmp_path: Path) -> None:
    assert reports_of(tmp_path, one=text)["one"].tasks == []


def test_a_function_says_which_files_import_it(tmp_path: Path) -> None:
    found = reports_of(
        tmp_path,
        one="from sub.base import make\nmake('a')\n",
        two="from sub import base\nbase.make('a')\n",
        three="from other import make\nmake('a')\n",
        four="print 'make'\n",
    )
    notes = {place.task_id: judgement.notes for place, judgement in found["base"].tasks}
    assert "make is imported by 2 of the other files: --load counts the tasks they make" in notes["name"]


def test_a_function_that_others_import_names_the_connection(tmp_path: Path) -> None:
    """Their default_args may give another one, also where those of its own file do not."""
    dag = f"from airflow.sdk import DAG\n{_BASE}\nwith DAG('d'):\n    make('a')\n"
    other = "from own import make\nwith DAG('e', default_args={'conn_id': 'x'}):\n    make('b')\n"
    for name, texts in (("alone", {}), ("used", {"other": other})):
        text = reports_of(tmp_path / name, own=dag, **texts)["own"].changed_text or ""
        assert ('FlinklikeSubmitOperator(conn_id="flinklike_default"' in text) is bool(texts)


def test_what_a_class_has_is_no_task(tmp_path: Path) -> None:
    found = reports_of(tmp_path)
    assert [place.task_id for place, _ in found["base"].tasks] == ["Ours", "name"]
    assert summarize(found.values()).places == {"moves": 1, "environment": 0, "jar": 0, "stays": 0}

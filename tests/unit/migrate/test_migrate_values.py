"""Values of expressions, as far as the text tells them."""

from __future__ import annotations

import ast
from datetime import timedelta
from typing import Any

import pytest

from airflow_flinklike.migrate.finding import find_tasks
from airflow_flinklike.migrate.model import Computed
from airflow_flinklike.migrate.tree import Tree


def value_of(expression: str, before: str = "") -> Any:
    tree = Tree(f"{before}\nresult = {expression}\n")
    last = tree.module.body[-1]
    assert isinstance(last, ast.Assign)
    return tree.value(last.value)


@pytest.mark.parametrize(
    ("expression", "before", "expected"),
    [
        ("1", "", 1),
        ("-2.5", "", -2.5),
        ("(1, [2], {3})", "", [1, [2], [3]]),
        ("{'a': 1, **B}", "B = dict(b=2)", {"a": 1, "b": 2}),
        ("dict(A, c=3)", "A = {'a': 1}", {"a": 1, "c": 3}),
        ("A | {'b': 2}", "A = {'a': 1}", {"a": 1, "b": 2}),
        ("A.copy()", "A = {'a': 1}", {"a": 1}),
        ("A['x'][1]", "A = {'x': [1, 2]}", 2),
        ("f'{A}/b'", "A = 'a'", "a/b"),
        ("A + 'b'", "A = 'a'", "ab"),
        ("[*A, 3]", "A = [1, 2]", [1, 2, 3]),
        ("','.join(['a', 'b'])", "", "a,b"),
        ("list(range(1, 4))", "", [1, 2, 3]),
        ("timedelta(hours=2)", "from datetime import timedelta", timedelta(hours=2)),
        ("timedelta(2)", "from datetime import timedelta", timedelta(days=2)),
        ("A", "A: str = 'typed'", "typed"),
        ("B", "A = 1\nB = A", 1),
    ],
)
def test_literal_values_are_known(expression: str, before: str, expected: Any) -> None:
    assert value_of(expression, before) == expected


@pytest.mark.parametrize(
    ("expression", "end"),
    [
        ("f'{HOME}/jobs/a.py'", "/jobs/a.py"),
        ("HOME + '/a.py'", "/a.py"),
        ("HOME / 'jobs' / 'a.py'", "a.py"),
        ("str(Path(HOME) / 'a.jar')", "a.jar"),
        ("os.path.join(HOME, 'a.py')", "a.py"),
        ("os.fspath(HOME / f'{NAME}.py')", ".py"),
        ("f'{HOME}/{NAME}'", ""),
        ("f('a.py')", ""),
        ("HOME - 'a.py'", ""),
    ],
)
def test_the_end_of_a_computed_value_may_be_known(expression: str, end: str) -> None:
    value = value_of(expression)
    assert isinstance(value, Computed)
    assert value.end == end


@pytest.mark.parametrize(
    ("expression", "before"),
    [
        ("f()", ""),
        ("A", ""),
        ("A", "A = 1\nA = 2"),
        ("A", "A = 1\nA += 2"),
        ("A", "if x:\n    A = 1"),
        ("A", "for A in [1]: pass"),
        ("A", "A = {'a': 1}\nA['b'] = 2"),
        ("A", "A = {'a': 1}\nA.update(b=2)"),
        ("A", "A = 1\ndef f():\n    global A\n    A = 2"),
        ("A", "from x import A"),
        ("A", "A = B\nB = A"),
        ("A['b']", "A = {'a': 1}"),
        ("f'{a!r}'", "a = 1"),
        ("'%s' % a", "a = 1"),
        ("range(10**9)", ""),
        ("timedelta(hours=x)", ""),
    ],
)
def test_other_values_are_known_when_the_file_runs(expression: str, before: str) -> None:
    assert isinstance(value_of(expression, before), Computed)


def test_parts_of_a_mapping_may_be_unknown() -> None:
    assert value_of("{'a': f(), 'b': 1, **rest()}") == {
        "a": Computed("f()"),
        "b": 1,
        Computed("**rest()"): Computed("rest()"),
    }


def test_a_function_sees_its_own_names_first_and_no_names_of_classes() -> None:
    tree = Tree("A = 1\nclass C:\n    A = 2\n    def m(self):\n        return A\ndef g(A):\n    return A\n")
    returned = [node.value for node in tree.nodes if isinstance(node, ast.Return) and node.value is not None]
    assert [tree.value(one) for one in returned] in ([1, Computed("A")], [Computed("A"), 1])


def test_deep_nesting_ends() -> None:
    assert value_of("[" * 60 + "]" * 60) is not None


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("[[r] for r in ('eu', 'us')]", 2),
        ("[[r, n] for r in ('eu', 'us') for n in range(3)]", 6),
        ("[r for r in regions()]", None),
        ("[r for r in ('eu', 'us') if r in ALLOWED]", None),
    ],
)
def test_a_comprehension_has_as_many_tasks_as_its_lists(source: str, count: int | None) -> None:
    text = (
        "from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator\n"
        f"SparkSubmitOperator.partial(task_id='a', application='a.py').expand(application_args={source})\n"
    )
    (place,) = find_tasks(text).places
    assert place.count == count

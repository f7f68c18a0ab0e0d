"""What `@task.flinklike` can do in a DAG: mapping, several outputs, templates, groups, setup and teardown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, setup, task, task_group, teardown

if TYPE_CHECKING:
    from collections.abc import Mapping

with DAG(dag_id="decorated_mapping", schedule=None):

    @task.flinklike
    def product(spark: Any, a: int, b: int = 10) -> int:
        """a * b."""
        assert spark == "session"
        return a * b

    @task
    def pairs() -> list[dict[str, int]]:
        """The inputs of the mapping, known at run time only."""
        return [{"a": 1, "b": 2}, {"a": 3}]

    @task
    def listed(values: Any) -> list[int]:
        """Context values arrive as plain values."""
        return list(values)

    listed.override(task_id="expanded")(product.expand(a=[1, 2, 3]))
    listed.override(task_id="with_partial")(product.override(task_id="partly").partial(b=2).expand(a=[1, 2]))
    listed.override(task_id="crossed")(product.override(task_id="both").expand(a=[1, 2], b=[3, 4]))
    listed.override(task_id="by_kwargs")(product.override(task_id="named").expand_kwargs(pairs()))
    listed.override(task_id="given_kwargs")(
        product.override(task_id="fixed").partial(b=5).expand_kwargs([{"a": 1}, {"a": 2}])
    )

with DAG(dag_id="decorated_outputs", schedule=None):

    @task.flinklike
    def split(n: int) -> dict[str, int]:
        """The return type stands for several outputs."""
        return {"half": n // 2, "rest": n - n // 2}

    @task.flinklike(multiple_outputs=False)
    def whole(n: int) -> dict[str, int]:
        """One output, a mapping."""
        return {"n": n}

    @task.flinklike
    def unknown(n: int) -> Mapping[str, int]:
        """The name of the return type does not exist when the DAG runs."""
        return {"n": n}

    @task.flinklike
    def joined(half: Any, rest: Any) -> int:
        """Takes the outputs one by one."""
        return int(half) * 100 + int(rest)

    parts: Any = split(7)
    joined(parts["half"], parts["rest"])
    whole(1)
    unknown(2)

with DAG(dag_id="decorated_templates", schedule=None, params={"table": "orders"}):

    @task.flinklike(
        templates_dict={"query": "decorator_query.sql", "run": "{{ run_id }}"},
        templates_exts=[".sql"],
        multiple_outputs=False,
    )
    def rendered(first: str, *more: str, templates_dict: Any = None, **named: Any) -> dict[str, Any]:
        """All arguments are rendered."""
        return {"args": [first, *more], "kwargs": named, "templates": dict(templates_dict)}

    rendered("{{ params.table }}", "b {{ task.task_id }}", "decorator_query.sql", deep={"k": ["{{ params.table }}"]})

with DAG(dag_id="decorated_groups", schedule=None):

    @task_group
    def inside(n: int) -> Any:
        """A job that follows another one."""
        first: Any = product.override(task_id="first")
        second: Any = product.override(task_id="second")
        return second(first(n), 3)

    inside(2)
    inside.expand(n=[1, 2])

with DAG(dag_id="decorated_setup", schedule=None):

    @setup
    @task.flinklike
    def prepare() -> str:
        """The setup."""
        return "something"

    @task.flinklike
    def breaks(thing: str) -> str:
        """Fails between setup and teardown."""
        raise LookupError(thing)

    @teardown
    @task.flinklike
    def clean(thing: str) -> str:
        """The teardown, which runs after a failure too."""
        return f"{thing} is gone"

    thing = prepare()
    breaks(thing) >> clean(thing)

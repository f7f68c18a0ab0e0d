"""What is known of a Spark task of a DAG file: where it stands, its parameters, and what becomes of it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What runs the task now."""

    SPARK_SUBMIT = "SparkSubmitOperator"
    PYSPARK = "@task.pyspark"
    SPARK_SQL = "SparkSqlOperator"
    LIVY = "LivyOperator"


class Verdict(StrEnum):
    """What becomes of a task."""

    MOVES = "moves"
    ENVIRONMENT = "environment"
    JAR = "jar"
    STAYS = "stays"

    @property
    def in_words(self) -> str:
        """For people."""
        return _IN_WORDS[self]


_IN_WORDS = {
    Verdict.MOVES: "moves as it is",
    Verdict.ENVIRONMENT: "moves, in a Spark environment of its own",
    Verdict.JAR: "moves, as a supervised jar",
    Verdict.STAYS: "stays",
}


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that is known only when the DAG file runs, with the text that computes it.

    `end`: what the value ends with in any case, such as `.py`.
    """

    text: str
    end: str = ""

    def __str__(self) -> str:
        return self.text


def end_of(value: object) -> str:
    """What a text ends with, as far as that is known."""
    return value.end if isinstance(value, Computed) else value if isinstance(value, str) else ""


def says_something(value: object) -> bool:
    """False for values by which a parameter is not given."""
    return not (value is None or value is False or value == "")


class Origin(StrEnum):
    """Where a parameter of a task stands."""

    CALL = "call"
    SPREAD = "spread"
    DEFAULT_ARGS = "default_args"
    MAPPED = "mapped"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `value` is a literal, perhaps with parts that are `Computed`; of a mapped one it is the list.

    `keyword`: where it stands in the `call`; of a mapping that is taken with `**`, that.
    """

    value: Any
    origin: Origin = Origin.CALL
    keyword: ast.keyword | None = None
    call: ast.Call | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a DAG runs: `text` for people, `runs_per_day` as a mean; None: not known from the file."""

    text: str
    runs_per_day: float | None


@dataclass(eq=False, slots=True)
class DagInfo:
    """A DAG as its file describes it. `dag_id` is "" where the file computes it."""

    dag_id: str
    schedule: Schedule
    default_args: Mapping[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placement:
    """A DAG in which a place of the source makes `count` tasks; None: a number that is known when the file runs.

    `is_open`: it may be in a DAG that is not in sight, so that `default_args` count which only a run knows.
    """

    dag: DagInfo | None
    count: int | None
    is_open: bool = False


@dataclass(eq=False, slots=True)
class Place:
    """A place of the source that makes one task, or several: a call of an operator, or a decorated function.

    `reference` is the expression that names the operator. `obstacles` are reasons against a move that the way in which
    the source is written gives. `default_names` are those of parameters that `default_args` give. `has_unknown`: it has
    parameters that only a run knows; `open_spreads` are mappings that it takes with `**`, and that may have them, and
    `has_open_defaults` is true for `default_args` that may.

    `script_conf` is static conf in the application's own code, None if that is a script that was not read;
    `script_problem` says why.
    """

    kind: Kind
    line: int
    task_id: str
    reference: ast.expr
    calls: tuple[ast.Call, ...] = ()
    parameters: dict[str, Parameter] = field(default_factory=dict)
    obstacles: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    default_names: frozenset[str] = frozenset()
    script_conf: Mapping[str, str] | None = field(default_factory=dict)
    script_problem: str = ""
    has_unknown: bool = False
    open_spreads: list[ast.keyword] = field(default_factory=list)
    has_open_defaults: bool = False

    @property
    def count(self) -> int | None:
        """The number of its tasks, or None."""
        counts = [placement.count for placement in self.placements]
        return None if None in counts or not counts else sum(count for count in counts if count is not None)

    def value(self, name: str) -> Any:
        """The value of a parameter that all its tasks have alike, else None."""
        given = self.parameters.get(name)
        return None if given is None or given.origin is Origin.MAPPED else given.value

    def is_given(self, name: str) -> bool:
        """True for a parameter that does not come from `default_args` alone."""
        return name in self.parameters and self.parameters[name].origin is not Origin.DEFAULT_ARGS

    @property
    def application(self) -> str:
        """The name of the parameter with its application."""
        return "file" if self.kind is Kind.LIVY else "application"

    @property
    def is_jar(self) -> bool:
        """True if its application is a jar, as far as the file tells."""
        main = self.parameters.get("class_name" if self.kind is Kind.LIVY else "java_class")
        application = self.parameters.get(self.application)
        is_list = (
            application is not None and application.origin is Origin.MAPPED and isinstance(application.value, list)
        )
        given = [] if application is None else application.value if is_list else [application.value]
        return any(end_of(one).endswith(".jar") for one in given) or (main is not None and says_something(main.value))


class Act(StrEnum):
    """What the rewrite does with a parameter."""

    DROP = "drop"
    RENAME = "rename"
    SET = "set"
    DROP_KEY = "drop-key"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a parameter.

    `text`: the new name of RENAME, the Python text of SET, the key that DROP_KEY takes out. `why` is "" if it is plain.
    """

    act: Act
    name: str
    text: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of a task, why, and how its parameters change.

    `environments` are keys of Spark environments: one, or several for a mapped task; None in it: known when it runs.
    `memory_bytes`: of the JVM that is started for it, the largest of several; 0 if there is none, or it is not known.
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    environments: tuple[str | None, ...] = ()
    static_conf: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0

    @property
    def moves(self) -> bool:
        """True unless the task stays."""
        return self.verdict is not Verdict.STAYS

    def held(self, why: str) -> Judgement:
        """The same task, if it has to stay."""
        reasons = self.reasons if why in self.reasons else (*self.reasons, why)
        return Judgement(Verdict.STAYS, reasons, self.notes if not self.moves else ())

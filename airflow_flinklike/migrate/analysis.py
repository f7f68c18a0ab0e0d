"""One DAG file: what is in it, what becomes of each task, and its text after the move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflow_flinklike.migrate.changing import DEFAULT_CONN_ID, without_effect
from airflow_flinklike.migrate.defaults import idle_defaults, idle_names
from airflow_flinklike.migrate.files import SourceFile, UnreadableFileError, read
from airflow_flinklike.migrate.finding import Found, find_tasks
from airflow_flinklike.migrate.following import Classes, Importers
from airflow_flinklike.migrate.judging import judge
from airflow_flinklike.migrate.model import Judgement, Place
from airflow_flinklike.migrate.rewriting import RewriteError, rewrite
from airflow_flinklike.migrate.scripts import find_script

_WORDS = ("SparkSubmitOperator", "SparkSqlOperator", "LivyOperator", "pyspark", "spark_submit", "livy")
_DEPTH_MAX = 10


@dataclass(eq=False, slots=True)
class FileReport:
    """One file. `problem` is "" unless it could not be read, parsed, imported or written.

    `tasks` are the rows of the report: of each place one, or several when the real tasks of it differ.
    """

    path: Path
    problem: str = ""
    advice: list[str] = field(default_factory=list)
    """What nobody has to do for a task to move, and should do when it has."""
    tasks: list[tuple[Place, Judgement]] = field(default_factory=list)
    others: list[tuple[str, int]] = field(default_factory=list)
    source: SourceFile | None = None
    found: Found | None = None
    judgements: dict[Place, Judgement] = field(default_factory=dict)
    rows: dict[Place, list[tuple[Place, Judgement]]] = field(default_factory=dict)
    """Rows in the place of one, from the real tasks that Airflow has loaded."""
    changed_text: str | None = None
    is_written: bool = False

    @property
    def is_changed(self) -> bool:
        """True if a task of it moves."""
        return self.changed_text is not None

    def settle(self) -> None:
        """Make the changed text from the judgements. A place that cannot be changed stays."""
        if self.source is None or self.found is None:
            self.tasks = [row for rows in self.rows.values() for row in rows]
            return
        text = self.source.text
        try:
            changed = rewrite(text, self.found, self.judgements)
        except RewriteError as error:
            self.judgements = {place: one.held(str(error)) for place, one in self.judgements.items()}
            changed = text
        self.tasks = []
        for place, judgement in self.judgements.items():
            rows = self.rows.pop(place, [(place, judgement)])
            self.tasks += [(row, one if judgement.moves else judgement) for row, one in rows]
        self.tasks += [row for rows in self.rows.values() for row in rows]
        self.advice = list(dict.fromkeys(_advice(self.found, self.judgements)))
        self.changed_text = changed if changed != text else None

    def write(self) -> None:
        """Replace the file by the changed text, if there is one. A file that cannot be replaced gets a problem."""
        if self.source is None or self.changed_text is None:
            return
        try:
            self.source.replace(self.changed_text)
        except UnreadableFileError as error:
            self.problem = str(error)
        else:
            self.is_written = True


def _advice(found: Found, judgements: Mapping[Place, Judgement]) -> Iterator[str]:
    idle = idle_defaults(found, judgements)
    for place, judgement in judgements.items():
        if judgement.moves:
            yield from without_effect(place, idle_names(found.tree, place, idle))


def analyse_all(paths: Iterable[Path], conn_id: str = DEFAULT_CONN_ID) -> list[FileReport]:
    """Read files that may import from each other. What is wrong with one is in its report. `settle` has to follow."""
    reports = [analyse(path, conn_id) for path in paths]
    classes = Classes()
    names: set[str] = set()
    for _ in range(_DEPTH_MAX):  # a subclass of a subclass of another file takes a round of its own
        new = [classes.add(one.path, one.found.subclasses) for one in reports if one.found is not None]
        names = set().union(*new)
        if not names:
            break
        for report in reports:
            if report.source is not None and any(name in report.source.text for name in names):
                _find(report, conn_id, classes)
    _follow_makers(reports, conn_id)
    return reports


def _follow_makers(reports: Sequence[FileReport], conn_id: str) -> None:
    """Tasks that other files make by a function or class of one are in DAGs of those."""
    makers = [
        (report, place, name)
        for report in reports
        if report.found is not None
        for place in report.found.places
        if (name := report.found.maker_of(place))
    ]
    texts = [(report.path, report.source.text) for report in reports if report.source is not None]
    importers = Importers([(report.path, name) for report, _, name in makers], texts)
    for report, place, name in makers:
        if number := importers.number(report.path, name):
            place.has_open_defaults = True
            place.notes.append(f"{name} is imported by {number} of the other files: --load counts the tasks they make")
            report.judgements[place] = judge(place, conn_id)


def analyse(path: Path, conn_id: str = DEFAULT_CONN_ID) -> FileReport:
    """Read one file alone."""
    report = FileReport(path)
    try:
        report.source = read(path)
    except UnreadableFileError as error:
        report.problem = str(error)
    else:
        if any(word in report.source.text for word in _WORDS):
            _find(report, conn_id, Classes())
    return report


def _find(report: FileReport, conn_id: str, classes: Classes) -> None:
    """Find the tasks of a file that was read, and judge them."""
    assert report.source is not None
    try:
        report.found = find_tasks(report.source.text, lambda full: classes.kind_of(full, report.path))
        report.others = report.found.others
        for place in report.found.places:
            place.script_conf, place.script_problem = find_script(place, report.path, report.found.tree)
        report.judgements = {place: judge(place, conn_id) for place in report.found.places}
    except SyntaxError as error:
        report.problem = f"it is no Python: line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        report.problem = f"it is no Python that can be read: {type(error).__name__} {error}"

"""The changes of all files as one unified diff, which `git apply` and `patch -p1` take."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from airflow_flinklike.migrate.analysis import FileReport

_NO_END = "\\ No newline at end of file\n"


def patch_of(reports: Iterable[FileReport]) -> str:
    """The diff of the files that change; "" if none does."""
    return "".join(_diff(report) for report in reports if report.is_changed)


def _diff(report: FileReport) -> str:
    assert report.source is not None
    assert report.changed_text is not None
    path = str(report.path)
    old, new = (_lines(text) for text in (report.source.text, report.changed_text))
    lines = difflib.unified_diff(old, new, f"a/{path.lstrip('/')}", f"b/{path.lstrip('/')}")
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_END}" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines as `patch` counts them: only \\n ends one."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])

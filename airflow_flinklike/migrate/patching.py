"""The changes of all files as one unified diff, which `git apply` and `patch -p1` take."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from airflow_flinklike.migrate.analysis import FileReport

_NO_END = "\\ No newline at end of file\n"


def patch_of(reports: Iterable[FileReport]) -> bytes:
    """The diff of the files that change, each in its own encoding; empty if none does."""
    return b"".join(_diff(report) for report in reports if report.is_changed)


def _diff(report: FileReport) -> bytes:
    assert report.source is not None
    assert report.changed_text is not None
    has_mark = report.source.encoding == "utf-8-sig"  # a byte order mark is a part of the first line
    encoding, mark = ("utf-8", "\ufeff") if has_mark else (report.source.encoding, "")
    path = str(report.path).lstrip("/")
    old, new = (_lines(mark + text) for text in (report.source.text, report.changed_text))
    lines = difflib.unified_diff(old, new, "a", "b")
    heads = (f"--- a/{path}\n".encode(), f"+++ b/{path}\n".encode())
    body = "".join(line if line.endswith("\n") else f"{line}\n{_NO_END}" for line in [*lines][2:])
    return b"".join(heads) + body.encode(encoding)


def _lines(text: str) -> list[str]:
    """Lines as `patch` counts them: only \\n ends one."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])

"""The snippets and commands of the documentation, taken out of its pages.

`doc_snippets()` gives every block of Python. `run_snippet` executes one in a directory of its own and returns the jobs
that it built: tests look at them, or submit them with `client.submit(job.graph, job_id=..., contents=job.uploads)`.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType

from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.api.program import Program

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_FOREIGN_CODE = '"shop.jobs:'


class SnippetKind(Enum):
    """The needs of a block of Python."""

    PROGRAM = "builds programs; needs nothing"
    LOCAL = "runs on a cluster of its own; needs the extra `cluster`"
    CLIENT = "submits; needs a cluster at FLINKLIKE_ADDRESS"
    DAG = "a DAG file; needs Airflow"


@dataclass(frozen=True, slots=True)
class Snippet:
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def kind(self) -> SnippetKind:
        """The kind of a block of Python."""
        if "from airflow.sdk import" in self.text:
            return SnippetKind.DAG
        if ".run_local(" in self.text:
            return SnippetKind.LOCAL
        return SnippetKind.CLIENT if ".submit(" in self.text else SnippetKind.PROGRAM

    @property
    def is_self_contained(self) -> bool:
        """True if the snippet's jobs can run: it names no module that only a reader has."""
        return _FOREIGN_CODE not in self.text


def blocks(language: str) -> list[Snippet]:
    """Every fenced block of a language."""
    found: list[Snippet] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found += [
            Snippet(page, text.count("\n", 0, match.start()) + 2, language, match.group(2))
            for match in _FENCE.finditer(text)
            if match.group(1) == language
        ]
    return found


def doc_snippets(*kinds: SnippetKind) -> list[Snippet]:
    """Every block of Python, or those of some kinds."""
    return [snippet for snippet in blocks("python") if not kinds or snippet.kind in kinds]


def run_snippet(snippet: Snippet, directory: Path) -> list[JobProgram]:
    """Execute a snippet as the main program of `directory`, and return the jobs in its variables, built."""
    with _working_in(directory):
        module = ModuleType("__main__")
        module.__file__ = str(directory / "snippet.py")
        previous, sys.modules["__main__"] = sys.modules["__main__"], module
        try:
            exec(compile(snippet.text, str(snippet), "exec"), module.__dict__)
            return [value.build() for value in vars(module).values() if isinstance(value, Program)]
        finally:
            sys.modules["__main__"] = previous


@contextmanager
def _working_in(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


@dataclass(frozen=True, slots=True)
class DocCommand:
    """One line of a bash block. `words` leaves out comments and the assignments in front."""

    snippet: Snippet
    line: str
    assignments: dict[str, str]
    words: list[str]

    def __str__(self) -> str:
        return " ".join(self.words)[:60]


def doc_commands() -> list[DocCommand]:
    """Every command of the bash blocks."""
    found = []
    for snippet in blocks("bash"):
        for line in snippet.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            assignments = {}
            while words and re.match(r"[A-Z][A-Z0-9_]*=", words[0]):
                name, _, value = words.pop(0).partition("=")
                assignments[name] = value
            if words:
                found.append(DocCommand(snippet, line, assignments, words))
    return found


def headings(page: Path) -> list[str]:
    """Every heading of a page, without its marks."""
    return _HEADING.findall(page.read_text(encoding="utf-8"))


def inline_code() -> list[tuple[Path, str]]:
    """Every `piece of code` inside the text of a page."""
    found = []
    for page in PAGES:
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        found += [(page, code) for code in _INLINE.findall(text)]
    return found

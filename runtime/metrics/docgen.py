"""Writes the tables of docs/metrics.md from the table of metrics: `python -m runtime.metrics.docgen [--check]`."""

from __future__ import annotations

import sys
from pathlib import Path

from runtime.metrics.metric import Label, Metric, Owner
from runtime.metrics.table import TABLE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
BEGIN = "<!-- made by python -m runtime.metrics.docgen -->"
END = "<!-- end of what is made -->"


def tables() -> str:
    """A table for each kind of process."""
    parts = []
    for owner in Owner:
        parts.append(f"\n### {owner.value}\n\n| metric | kind | meaning | labels | Flink's |\n|---|---|---|---|---|\n")
        parts += [_row(metric) for metric in TABLE if metric.owner is owner]
    return "".join(parts)


def _row(metric: Metric) -> str:
    labels = "; ".join(_label(label) for label in metric.labels)
    flink = f"`{metric.flink}`" if metric.flink else ""
    cells = (f"`{metric.name}`", metric.kind.value, metric.meaning.replace("|", "\\|"), labels, flink)
    return f"| {' | '.join(cells)} |\n".replace("  ", " ")


def _label(label: Label) -> str:
    return f"`{label.name}`: {label.meaning or ', '.join(label.values)}"


def page(text: str) -> str:
    """`text` with the tables between its two marks."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{tables()}\n{END}{tail}"


def main(arguments: list[str]) -> int:
    """Write the tables. With --check compare only: exit code 1 when they are stale."""
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in arguments:
        is_current = page(text) == text
        if not is_current:
            sys.stderr.write("docs/metrics.md is stale: run python -m runtime.metrics.docgen\n")
        return 0 if is_current else 1
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The report: text, CSV and a chart, from what the jobs returned."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Answers = Mapping[str, Sequence[Mapping[str, Any]]]


def write_report(directory: Path, answers: Answers, customers: Sequence[Mapping[str, Any]], scale_factor: float) -> str:
    """Write report.txt, revenue.csv and revenue.png into `directory`; returns the text."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_csv(directory / "revenue.csv", answers["q5"])
    _write_chart(directory / "revenue.png", answers["q5"])
    text = "\n".join(
        [
            f"TPC-H at scale factor {scale_factor:g}",
            "",
            "Q1  pricing summary",
            _table(answers["q1"], ("l_returnflag", "l_linestatus", "sum_qty", "sum_charge", "avg_disc", "count_order")),
            "Q3  open orders with the highest revenue",
            _table(answers["q3"], ("l_orderkey", "revenue", "o_orderdate")),
            "Q5  revenue of local suppliers in ASIA, 1994",
            _table(answers["q5"], ("n_name", "revenue")),
            f"Q6  revenue that smaller discounts would have brought: {answers['q6'][0]['revenue']:,.2f}",
            "",
            "Customers with the highest balance",
            _table(customers, ("c_name", "c_acctbal")),
        ]
    )
    (directory / "report.txt").write_text(text + "\n", encoding="utf-8")
    return text


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    cells = [list(columns)] + [[_cell(row[column]) for column in columns] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(columns))]
    lines = ["    " + "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join([*lines, ""])


def _cell(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _write_csv(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as sink:
        writer = csv.DictWriter(sink, fieldnames=list(rows[0]) if rows else ["n_name", "revenue"])
        writer.writeheader()
        writer.writerows(rows)


def _write_chart(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - only where the report is drawn
    from matplotlib.figure import Figure  # noqa: PLC0415 - only where the report is drawn

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.barh([str(row["n_name"]) for row in rows][::-1], [float(row["revenue"]) / 1e6 for row in rows][::-1])
    axes.set_xlabel("revenue, millions")
    axes.set_title("Q5: local suppliers in ASIA, 1994")
    figure.savefig(file)

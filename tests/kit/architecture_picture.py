"""Draws docs/components.svg: the folders of the product, and which of them imports which, as the sources say it.

Rows are the layers of `.importlinter`. An arrow that a longer way of other arrows implies is left out, so that a reader
can follow the others. `python -m tests.kit.architecture_picture` writes the file.
"""

from __future__ import annotations

import ast
import configparser
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "components.svg"

_TOP = ("airflow_flinklike", "jobmaster_process")
_BOX_WIDTH, _BOX_HEIGHT, _LANE_WIDTH = 164, 40, 22
_GAP, _ROW_HEIGHT, _MARGIN = 26, 92, 20
_SWEEPS = 24
_ARROW_HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#5b6b7f"/></marker>'
)

Edges = Mapping[str, frozenset[str]]
"""What each folder imports."""


def folders() -> list[str]:
    """Every component: the top folders, and those below `runtime`."""
    below = sorted(path.parent.name for path in (ROOT / "runtime").glob("*/__init__.py"))
    return [*_TOP, *(f"runtime.{name}" for name in below)]


@cache
def imports() -> Edges:
    """Which folder imports which, anywhere in its files."""
    known = folders()
    return {folder: frozenset(_imported_by(folder, known)) - {folder} for folder in known}


def _imported_by(folder: str, known: Sequence[str]) -> Iterator[str]:
    for path in sorted((ROOT / folder.replace(".", "/")).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from (one for one in known for name in names if f"{name}.".startswith(f"{one}."))


def without_implied(edges: Edges) -> Edges:
    """The arrows that no longer way implies (the transitive reduction of a graph without circles)."""

    @cache
    def reached(folder: str) -> frozenset[str]:
        return frozenset[str]().union(*({one} | reached(one) for one in edges[folder]))

    return {
        folder: frozenset(one for one in targets if not any(one in reached(other) for other in targets - {one}))
        for folder, targets in edges.items()
    }


def layers() -> list[list[str]]:
    """The rows from top to bottom, as the import contract has them."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    lines = contracts["importlinter:contract:layers"]["layers"].split("\n")
    return [[*_TOP], *([one.strip() for one in line.split("|")] for line in lines if line.strip())]


@dataclass(eq=False, slots=True)
class _Place:
    """A box, or the point at which a long arrow crosses a row (`folder` is "")."""

    folder: str
    row: int
    x: float = 0.0

    @property
    def width(self) -> int:
        return _BOX_WIDTH if self.folder else _LANE_WIDTH


class _Drawing:
    """Boxes in rows, and arrows that pass between the boxes of the rows that they cross."""

    def __init__(self, edges: Edges, rows: Sequence[Sequence[str]]) -> None:
        boxes = {name: _Place(name, number) for number, row in enumerate(rows) for name in row}
        self._rows: list[list[_Place]] = [[boxes[name] for name in row] for row in rows]
        self._ways = [self._way(boxes[name], boxes[one]) for name in boxes for one in sorted(edges.get(name, ()))]
        self._order()
        self._spread()

    def _way(self, source: _Place, target: _Place) -> list[_Place]:
        lanes = [_Place("", row) for row in range(source.row + 1, target.row)]
        for lane in lanes:
            self._rows[lane.row].append(lane)
        return [source, *lanes, target]

    def _neighbours(self, place: _Place) -> list[_Place]:
        return [other for way in self._ways for one, other in _pairs(way) if one is place]

    def _order(self) -> None:
        """Each place comes below the middle of those that it is connected with: few arrows cross then."""
        neighbours = {place: self._neighbours(place) for row in self._rows for place in row}
        for sweep in range(_SWEEPS):
            for row in self._rows:
                self._line_up(row)
            for row in self._rows if sweep % 2 else self._rows[::-1]:
                middles = {place: _mean([one.x for one in neighbours[place]], place.x) for place in row}
                row.sort(key=middles.__getitem__)
                self._line_up(row)

    @staticmethod
    def _line_up(row: Sequence[_Place]) -> None:
        """Side by side, around 0."""
        x = -(sum(place.width for place in row) + _GAP * (len(row) - 1)) / 2
        for place in row:
            place.x = x + place.width / 2
            x += place.width + _GAP

    def _spread(self) -> None:
        """Straighten the arrows: each place goes to the middle of its neighbours, as far as its row has room."""
        neighbours = {place: self._neighbours(place) for row in self._rows for place in row}
        for sweep in range(_SWEEPS):
            for row in self._rows if sweep % 2 else self._rows[::-1]:
                _settle(row, [_mean([one.x for one in neighbours[place]], place.x) for place in row])
        left = min(place.x - place.width / 2 for row in self._rows for place in row)
        for row in self._rows:
            for place in row:
                place.x += _MARGIN - left

    def svg(self) -> str:
        """The picture as a document."""
        width = max(place.x + place.width / 2 for row in self._rows for place in row) + _MARGIN
        height = len(self._rows) * _ROW_HEIGHT - (_ROW_HEIGHT - _BOX_HEIGHT) + 2 * _MARGIN
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="sans-serif">',
            f'<rect width="{width:.0f}" height="{height}" fill="white"/>',
            _ARROW_HEAD,
            *(self._arrow(way) for way in self._ways),
            *(self._box(place) for row in self._rows for place in row if place.folder),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _arrow(self, way: Sequence[_Place]) -> str:
        x, y = way[0].x, _top(way[0].row) + _BOX_HEIGHT
        path = f"M{x:.0f} {y}"
        for place in way[1:]:
            top = _top(place.row)
            middle = (y + top) / 2
            path += f" C{x:.0f} {middle:.0f} {place.x:.0f} {middle:.0f} {place.x:.0f} {top}"
            x, y = place.x, top
            if not place.folder:
                y += _BOX_HEIGHT
                path += f" L{x:.0f} {y}"
        return f'<path d="{path}" fill="none" stroke="#5b6b7f" stroke-width="1.2" marker-end="url(#head)"/>'

    def _box(self, place: _Place) -> str:
        left, top = place.x - _BOX_WIDTH / 2, _top(place.row)
        name = place.folder.removeprefix("runtime.")
        color = "#dce9f7" if place.folder.startswith("runtime.") else "#fbe9d0"
        return (
            f'<rect x="{left:.0f}" y="{top}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6" fill="{color}" '
            f'stroke="#34495e"/><text x="{place.x:.0f}" y="{top + 25}" font-size="15" text-anchor="middle">'
            f"{escape(name)}</text>"
        )


def _pairs(way: Sequence[_Place]) -> Iterator[tuple[_Place, _Place]]:
    for one, other in itertools.pairwise(way):
        yield one, other
        yield other, one


def _settle(row: Sequence[_Place], wanted: Sequence[float]) -> None:
    """Each place as near to where it wants to be as the order and the gaps of its row allow, all together."""
    offset = 0.0
    offsets, groups = [], list[list[float]]()
    for number, place in enumerate(row):
        offset += _GAP + (row[number - 1].width + place.width) / 2 if number else 0.0
        offsets.append(offset)
        groups.append([wanted[number] - offset])
        while len(groups) > 1 and _mean(groups[-2], 0) > _mean(groups[-1], 0):
            last = groups.pop()
            groups[-1] += last
    settled = [_mean(group, 0) for group in groups for _ in group]
    for place, position, offset in zip(row, settled, offsets, strict=True):
        place.x = position + offset


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _top(row: int) -> int:
    return _MARGIN + row * _ROW_HEIGHT


def picture() -> str:
    """The document that docs/components.svg has to be."""
    return _Drawing(without_implied(imports()), layers()).svg()


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
